// Fauxqs on loopback: its own command listens on every address. Argument: the port.
import { buildApp } from 'fauxqs'

const app = buildApp({ logger: false })
await app.listen({ port: Number(process.argv[2]), host: '127.0.0.1' })
console.error(JSON.stringify({ msg: 'serving' }))
