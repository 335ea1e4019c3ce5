// Package brokertest holds every broker to one contract: what the relay relies on when it publishes, and what consumers
// rely on when they read.
//
// A Suite is an adapter with a server. [Rules] are the contract, each a test; a suite runs all of them but those that
// [Exceptions] names for it, with the reason. The servers in the process, which need no installation, are in
// internal/broker; those that others wrote, as processes that are killed, in proof/broker.
//
//	server                      order is kept by   a repetition has      too large is refused by     killed
//	NATS JetStream, internal    the stream         Nats-Msg-Id: dropped  the client: max_payload     shut down
//	kfake, internal             the record's key   the event's id        the client: the topic's     shut down
//	our fake of SQS, internal   the group          its id: dropped       the server                  shut down
//	fauxqs, SQS FIFO, proof     the group          its id: dropped       the server                  no
//	kinesalite, Kinesis, proof  the partition key  the event's id        the server                  kill -9
//	RabbitMQ 3.10, proof        the queue          the event's id        the adapter, or the server  kill -9
//	Kafka by URL, proof         the record's key   the event's id        the client: the topic's     no
package brokertest
