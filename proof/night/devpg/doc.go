// Package devpg starts the servers of testkit/devpg that take long to get: containers, a download, standbys and replicas.
// The tests beside testkit/devpg show its rules on one server of this machine.
package devpg
