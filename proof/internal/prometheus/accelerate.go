package prometheus

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"example.com/payonce/deploy"
)

// acceleration is how many times as fast as in production the rules are evaluated: ten
// minutes become ten seconds.
const acceleration = 60

var (
	ranges = regexp.MustCompile(`\[(\d+)([mh])\]`)
	delays = regexp.MustCompile(`\b(for:|offset) (\d+)([mh])`)
	ages   = regexp.MustCompile(`([a-z_]+_seconds\)) > (\d+)`)
)

// Accelerated is the rules with every duration divided: ranges, offsets, the time
// for which a rule must hold, and the bounds on ages. Bounds on counts, rates and
// shares stay as they are, and so does the one on how long a loop may stand still,
// because the loops' own pauses are not divided. Ranges and ages keep at least five
// seconds: five scrapes, and more than an event waits on a busy machine.
func Accelerated(rules string) string {
	divided := func(number, unit string, least time.Duration) string {
		n, _ := strconv.Atoi(number)
		d := time.Duration(n) * time.Minute
		if unit == "h" {
			d *= 60
		}
		return fmt.Sprintf("%dms", max(d/acceleration, least).Milliseconds())
	}
	rules = ranges.ReplaceAllStringFunc(rules, func(s string) string {
		m := ranges.FindStringSubmatch(s)
		return "[" + divided(m[1], m[2], 5*time.Second) + "]"
	})
	rules = delays.ReplaceAllStringFunc(rules, func(s string) string {
		m := delays.FindStringSubmatch(s)
		return m[1] + " " + divided(m[2], m[3], time.Second)
	})
	return ages.ReplaceAllStringFunc(rules, func(s string) string {
		m := ages.FindStringSubmatch(s)
		if strings.Contains(m[1], "loop_idle") {
			return s
		}
		n, _ := strconv.ParseFloat(m[2], 64)
		return fmt.Sprintf("%s > %g", m[1], max(5, n/acceleration))
	})
}

// job is how the rules and the dashboards know the service.
const job = "payonce"

// configFor is prometheus.yml with other targets, and faster.
func configFor(targets []string) ([]byte, error) {
	var config map[string]any
	if err := yaml.Unmarshal([]byte(deploy.PrometheusConfig), &config); err != nil {
		return nil, fmt.Errorf("read prometheus.yml: %w", err)
	}
	config["global"] = map[string]any{"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
	all, _ := config["scrape_configs"].([]any)
	var jobs []any // Prometheus itself is somewhere else here, and of no interest.
	for _, one := range all {
		if scraped, ok := one.(map[string]any); ok && scraped["job_name"] == job {
			delete(scraped, "dns_sd_configs")
			scraped["static_configs"] = []any{map[string]any{"targets": targets}}
			jobs = append(jobs, scraped)
		}
	}
	if len(jobs) != 1 {
		return nil, errors.New("prometheus.yml does not scrape the service")
	}
	config["scrape_configs"] = jobs
	return yaml.Marshal(config)
}
