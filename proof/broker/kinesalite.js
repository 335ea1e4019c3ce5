// Kinesalite on loopback: its own command listens on every address. Arguments: the port, and the folder of its streams.
import kinesalite from 'kinesalite'

// Kinesalite throws when a client goes away in the middle of a request. Kinesis serves the others.
process.on('uncaughtException', (err) => {
  if (err.code !== 'ECONNRESET') throw err
})

const [port, path] = process.argv.slice(2)
kinesalite({ path, createStreamMs: 20, updateStreamMs: 100, shardLimit: 1000 }).listen(Number(port), '127.0.0.1', () =>
  console.error(JSON.stringify({ msg: 'serving' })),
)
