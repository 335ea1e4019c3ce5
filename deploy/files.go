package deploy

import "embed"

// What Prometheus and Grafana are given, for a Prometheus that watches tests and
// chaos (package observer) with the very rules that will watch production.
var (
	//go:embed prometheus/rules.yml
	Rules string
	//go:embed prometheus/prometheus.yml
	PrometheusConfig string
	//go:embed grafana/dashboards/*.json
	Dashboards embed.FS
)
