// Fauxqs on loopback: its own command listens on every address. Argument: the port. The addresses of its queues begin with
// that of the server, not with a name that only its own clients resolve.
import { buildApp } from 'fauxqs'
import { SqsStore } from './node_modules/fauxqs/dist/sqs/sqsStore.js'

const sqsStore = new SqsStore()
sqsStore.host = ''
const app = buildApp({ logger: false, stores: { sqsStore } })
await app.listen({ port: Number(process.argv[2]), host: '127.0.0.1' })
console.error(JSON.stringify({ msg: 'serving' }))
