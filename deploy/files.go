package deploy

import "embed"

// What Prometheus and Grafana are given, for a Prometheus that watches tests and
// chaos (proof/internal/prometheus) with the rules used in production.
var (
	//go:embed prometheus/rules.yml
	Rules string
	//go:embed prometheus/prometheus.yml
	PrometheusConfig string
	//go:embed grafana/dashboards/*.json
	Dashboards embed.FS
)
