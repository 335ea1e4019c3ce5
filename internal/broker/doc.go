// Package broker connects the relay and the consumers to a broker: a JetStream
// server in this process, a NATS cluster, Kafka, or SQS FIFO queues.
//
// # What is asked of a broker
//
// Little. It must keep what it acknowledged, deliver it to every consumer at
// least once, and keep the order of one aggregate's messages. It need not
// deduplicate, and it cannot: a window of minutes, a producer's session, a
// transaction that ends at the broker's edge, each is narrower than the gap
// between "the broker has it" and "the database says so" that a killed process
// leaves. The event's id and the consumer's inbox give the guarantee; a broker's
// own dedupe saves work.
//
// # What each one does
//
//	            order        dedupe window     an error of the handler      largest message  "exactly once" there
//	JetStream   the stream   2 minutes, by     holds the consumer; comes    1 MiB (server's  the window, per stream
//	            (one message Nats-Msg-Id       again after a pause, without max_payload)
//	            in flight)                     a limit
//	Kafka       a partition, none across       holds the process's          1 MB (topic's    idempotent produce: no repetition
//	            by record    restarts          partitions; tried in place,  max.message.     by one producer's retries; nothing
//	            key                            without a limit              bytes)           about ours
//	SQS FIFO    a message    5 minutes, by     holds the aggregate; visible 256 KiB          the window, per queue
//	            group        deduplication id  again after a pause; without
//	                                           a limit unless the queue has
//	                                           a redrive policy: give it none
//
// The handler is an inbox.Consumer, which fails only when the database is away,
// so holding everything is right: nothing else could be applied either.
//
// # When something dies
//
// The broker, at start or later: Publish fails and says that it is not
// permanent, Consume waits; both connect again by themselves. We, between a
// message and its acknowledgement: it is delivered again, here or elsewhere,
// after six seconds without a sign of life (JetStream, Kafka) or the visibility
// timeout of half a minute (SQS). We, paused in between: two processes have it,
// and the inbox lets one of them through.
//
// # A relay that was paused
//
// A zombie may add old events to the log long after newer ones. Nothing at these
// brokers refuses that: JetStream's expected sequence guards a subject, and ours
// hold the events of many aggregates. What is promised is that the first
// occurrences of an aggregate's events are in the log in the order of their
// versions without a gap, because a relay sends an event only after the one
// before it was acknowledged. What comes later is a repetition, with an id that
// every consumer has seen.
package broker
