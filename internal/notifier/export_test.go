package notifier

// OperatorEndpoint is operatorEndpoint.
var OperatorEndpoint = operatorEndpoint
