package brokertest

const (
	inProcess = "the server is in the process of the test, where nothing freezes it alone"
	inMemory  = "the server keeps its messages in memory: what is killed there is lost"
	publishes = "the adapter only publishes; consumers of the service read the outbox"
)

// Exceptions are the rules that do not hold of a server, or cannot be tried there, and why.
var Exceptions = map[string]map[string]string{
	"JetStream": {"GivesUpOnASilentBrokerInTime": inProcess},
	// part: kafka {
	"Kafka": {"GivesUpOnASilentBrokerInTime": inProcess},
	"Kafka by URL": {
		"ReconnectsAfterTheBrokerWasUnreachable": "the server is another's, and is not stopped",
		"GivesUpOnASilentBrokerInTime":           "the server is another's, and is not frozen",
		"LosesNothingAcknowledgedWhenItIsKilled": "the server is another's, and is not killed",
	},
	// part: kafka }
	// part: sqs {
	"SQS": {"GivesUpOnASilentBrokerInTime": inProcess},
	"fauxqs": {
		"LosesNothingAcknowledgedWhenItIsKilled": inMemory,
		"ContinuesAfterTheLastAcknowledgedMessage": "the poll of a consumer that was stopped is given the next message, " +
			"which others see 30 s later: longer than the rule waits",
	},
	// part: sqs }
	// part: kinesis {
	"Kinesis": {
		"DeliversAgainWithoutLimitAndWithoutOvertaking": publishes,
		"ContinuesAfterTheLastAcknowledgedMessage":      publishes,
		"SharesAConsumerAmongProcessesInOrder":          publishes,
	},
	// part: kinesis }
}
