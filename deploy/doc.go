// Package deploy holds what the containers of docker-compose.yml are configured
// with. Its tests hold the compose file and the Dockerfile to their rules without
// needing an engine. What Prometheus and Grafana are given is embedded here, too,
// for the Prometheus that watches tests and chaos.
package deploy
