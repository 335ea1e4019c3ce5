// Package deploy holds the configuration of the containers in docker-compose.yml:
// Prometheus, Grafana, NATS and nginx. Its tests are in proof/deploy; they check the
// Compose file and the Dockerfile without a container engine.
package deploy
