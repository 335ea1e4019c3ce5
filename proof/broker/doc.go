// Package broker holds the adapters of internal/broker to testkit/brokertest's contract at servers that others wrote, as
// processes: RabbitMQ from Debian, Kinesis and SQS FIFO from npm, and a Kafka that an address names:
//
//	PAYONCE_TEST_KAFKA=kafka://127.0.0.1:9092 go test -C proof -tags brokers -v ./broker -run TestKafkaByURL
//
// Without an address that test has kfake, and says so. What each server is tried with, also those of internal/broker:
//
//	server                        order is kept by   a repetition has      too large is refused by  killed
//	NATS JetStream, in internal   the stream         Nats-Msg-Id: dropped  the client: max_payload  shut down
//	kfake, in internal            the record's key   the event's id        the client: the topic's  shut down
//	our fake of SQS, in internal  the group          its id: dropped       the server               shut down
//	fauxqs, SQS FIFO              the group          its id: dropped       the server               no
//	kinesalite, Kinesis           the partition key  the event's id        the server               kill -9
//	RabbitMQ                      the queue          the event's id        the server               kill -9
//	Kafka by URL                  the record's key   the event's id        the client: the topic's  no
//
// brokertest.Exceptions has the rules that one of them is not held to, with the reasons.
package broker
