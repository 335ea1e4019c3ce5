package broker

import "testing"

var sqsAdapter = adapter{
	name: "SQS", dedupes: true, tooLarge: 300 << 10,
	place: func(t testing.TB) place { return newSQS(t) },
}

func TestOpenRejectsWrongSQSSettings(t *testing.T) {
	t.Parallel()
	requireRejected(t, map[string]string{
		"sqs://sqs.eu-central-1.amazonaws.com/1/payonce": "?consumers= is missing",
		"sqs://host": "sqs://host/account/prefix",
		"sqs://sqs.eu-central-1.amazonaws.com/1/payonce?consumer=a": `unknown setting "consumer"`,
	})
}
