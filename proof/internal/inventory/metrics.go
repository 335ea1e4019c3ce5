package inventory

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// Metric is one that the service registers.
type Metric struct {
	Labels    []string
	Histogram bool
}

var metricName = regexp.MustCompile(`^payonce_[a-z_]+[a-z]$`)

// FindMetrics reads the metrics of the service from the source that registers
// them, tests and tools left out.
func FindMetrics() (map[string]Metric, error) {
	packages, err := parse(func(path string) bool {
		service := strings.HasPrefix(path, "internal/") || strings.HasPrefix(path, "db/") || strings.HasPrefix(path,
			"cmd/api/")
		return service && !strings.HasSuffix(path, "_test.go")
	})
	if err != nil {
		return nil, err
	}
	metrics := map[string]Metric{}
	for _, files := range packages {
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				if c, ok := n.(*ast.CallExpr); ok {
					if name, m, ok := registered(c); ok {
						metrics[name] = m
					}
				}
				if pair, ok := n.(*ast.KeyValueExpr); ok { // a table of gauges: name → function
					if name := text(pair.Key); metricName.MatchString(name) {
						metrics[name] = Metric{}
					}
				}
				return true
			})
		}
	}
	return metrics, nil
}

// registered reads prometheus.NewDesc(name, help, labels, …) and everything like
// NewCounterVec(prometheus.CounterOpts{Name: …}, labels).
func registered(c *ast.CallExpr) (name string, m Metric, ok bool) {
	f, isSelector := c.Fun.(*ast.SelectorExpr)
	if !isSelector || !strings.HasPrefix(f.Sel.Name, "New") || len(c.Args) == 0 {
		return "", m, false
	}
	if f.Sel.Name == "NewDesc" && len(c.Args) >= 3 {
		name, m.Labels = text(c.Args[0]), texts(c.Args[2])
		return name, m, metricName.MatchString(name)
	}
	options, isLiteral := c.Args[0].(*ast.CompositeLit)
	if !isLiteral {
		return "", m, false
	}
	for _, e := range options.Elts {
		if pair, isPair := e.(*ast.KeyValueExpr); isPair {
			if key, isIdent := pair.Key.(*ast.Ident); isIdent && key.Name == "Name" {
				name = text(pair.Value)
			}
		}
	}
	if len(c.Args) > 1 {
		m.Labels = texts(c.Args[1])
	}
	m.Histogram = strings.Contains(f.Sel.Name, "Histogram")
	return name, m, metricName.MatchString(name)
}

func text(e ast.Expr) string {
	if literal, ok := e.(*ast.BasicLit); ok && literal.Kind == token.STRING {
		s, _ := strconv.Unquote(literal.Value)
		return s
	}
	return ""
}

func texts(e ast.Expr) (list []string) {
	if literal, ok := e.(*ast.CompositeLit); ok {
		for _, element := range literal.Elts {
			list = append(list, text(element))
		}
	}
	return list
}
