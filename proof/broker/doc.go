// Package broker holds the adapters of internal/broker to testkit/brokertest's contract at servers that others wrote, as
// processes: RabbitMQ from Debian, Kinesis and SQS FIFO from npm, and a Kafka that an address names.
//
//	PAYONCE_TEST_KAFKA=kafka://127.0.0.1:9092 go test -C proof ./broker -run TestKafkaByURL
package broker
