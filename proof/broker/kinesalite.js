// Kinesalite on loopback: its own command listens on every address. Arguments: the port, and the folder of its streams.
import kinesalite from 'kinesalite'

const [port, path] = process.argv.slice(2)
kinesalite({ path, createStreamMs: 20, updateStreamMs: 100, shardLimit: 1000 }).listen(Number(port), '127.0.0.1', () =>
  console.error(JSON.stringify({ msg: 'serving' })),
)
