package deploy

import "embed"

// The tests and the chaos harness run a Prometheus with the rules and dashboards of
// production, so that an alert that cannot fire fails a test.
var (
	// Rules are the recording and alerting rules.
	//go:embed prometheus/rules.yml
	Rules string
	// PrometheusConfig is the configuration of the compose profile "observe".
	//go:embed prometheus/prometheus.yml
	PrometheusConfig string
	// Dashboards are Grafana's, one file each.
	//go:embed grafana/dashboards/*.json
	Dashboards embed.FS
)
