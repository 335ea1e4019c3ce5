// Package broker connects the relay and the consumers to a broker: a JetStream
// server in this process or a NATS cluster; Kafka; SQS FIFO queues; RabbitMQ; Kinesis; the log of the database.
//
// Each broker with a client library of its own is a package below this one, which a program has if it imports it
// (Register). The embedded server, NATS and the log are here.
//
// # Requirements
//
// A broker must keep what it acknowledged, deliver it to every consumer at least once, and keep the order of one
// aggregate's messages. It need not deduplicate, and it cannot: a window of minutes, a producer's session, a
// transaction that ends at the broker, each is shorter than the time between the broker's acknowledgement and the mark
// in the database when a process crashes between the two. The event's id and the consumer's inbox give the guarantee;
// the broker's own deduplication only saves work.
//
// # The brokers
//
//	            order        dedupe window     an error of the handler      largest message  its "exactly once"
//	JetStream   the stream   2 minutes, by     holds the consumer; comes    1 MiB (server's  the window, per stream
//	            (one message Nats-Msg-Id       again after a pause, without max_payload)
//	            in flight)                     a limit
//	Kafka       a partition, none across       holds the process's          1 MB (topic's    a producer's retries are
//	            by record    restarts          partitions; tried in place,  max.message.     not repeated
//	            key                            without a limit              bytes)
//	SQS FIFO    a message    5 minutes, by     holds the aggregate; visible 256 KiB          the window, per queue
//	            group        deduplication id  again after a pause; without
//	                                           a limit unless the queue has
//	                                           a redrive policy: give it none
//	RabbitMQ    the queue    none              holds the consumer; tried in  128 MiB, 16 of  none
//	                                           place, without a limit but    RabbitMQ 4
//	                                           that of RabbitMQ 4: lift it   (max_message_size)
//	Kinesis     a shard, by  none              nothing is delivered: the    1 MiB            none
//	            partition                      consumers read the outbox
//	            key
//	cdc         none across  none              not delivered again: the     none             the transaction
//	            aggregates                     consumer's feed has it
//
// Consumers of this service do not believe a message: they apply their own row of the event (package subscriber). Where
// the server says that it dropped an event as a repetition, JetStream only, Publish reads the message that it has, and
// returns outbox.ErrIDTaken if another publisher has sent it.
//
// The handler is a subscriber.Subscriber, which fails only when the database cannot be reached, so holding every message is
// right: none of them could be applied.
//
// # Failures
//
// If the broker cannot be reached, Publish returns an error that is not permanent and Consume waits; both reconnect
// automatically. If our process crashes before it has acknowledged a message, the message is delivered again, here or
// to another process, after six seconds without a heartbeat (JetStream, Kafka) or after the visibility timeout of 30
// seconds (SQS). If our process is paused at that point, two processes have the message, and the inbox applies it once.
//
// # A relay that was paused
//
// A relay that was paused may add old events to the log long after newer ones. The brokers do not prevent it:
// JetStream's expected sequence guards a subject, and our subjects hold the events of many aggregates. The promise is
// that the first occurrences of an aggregate's events are in the log in the order of their versions without a gap,
// because a relay sends an event only after the previous one was acknowledged. Later occurrences are repetitions, with
// an id that every consumer has seen.
package broker
