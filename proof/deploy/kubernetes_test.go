package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const kubernetes = "../../deploy/kubernetes"

var update = flag.Bool("update", false, "write the alerts of the Prometheus Operator")

// TestKubernetesIsValid: the example is what the schemas of Kubernetes and of the Prometheus Operator allow, and nothing
// that they do not know is in it.
func TestKubernetesIsValid(t *testing.T) {
	t.Parallel()
	schemas := kubernetesSchemas(t)
	rendered := rendered(t)
	require.NoError(t, conforms(t, schemas, rendered))
	for what, edit := range map[string][2]string{
		"a misspelt member":     {"terminationGracePeriodSeconds:", "terminationGracePeriodSecond:"},
		"a text for a number":   {"replicas: 3", "replicas: three"},
		"a required member":     {"topologyKey: kubernetes.io/hostname\n", "\n"},
		"a kind nobody has":     {"kind: PodDisruptionBudget", "kind: PodDisruption"},
		"a monitor of nothing":  {"  endpoints:\n  - interval: 15s\n    port: admin\n", ""},
		"an alert without expr": {"expr: ", "exp: "},
	} {
		broken := strings.Replace(rendered, edit[0], edit[1], 1)
		require.NotEqual(t, rendered, broken, what)
		require.Error(t, conforms(t, schemas, broken), what)
	}
}

// TestKubernetesRunsTheService: what the manifests say of the service is true of it.
func TestKubernetesRunsTheService(t *testing.T) {
	t.Parallel()
	type object = map[string]any
	objects := map[string]object{}
	decoder := yaml.NewDecoder(strings.NewReader(rendered(t)))
	for {
		var o object
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		meta, _ := o["metadata"].(object)
		name, _ := meta["name"].(string)
		objects[fmt.Sprint(o["kind"], " ", name)] = o
		if o["kind"] != "Namespace" {
			require.Equal(t, "payonce", meta["namespace"], name)
		}
	}
	at := func(value any, path ...string) any {
		for _, name := range path {
			switch v := value.(type) {
			case object:
				value = v[name]
			case []any:
				value = v[0]
				if o, ok := value.(object); ok && name != "0" {
					value = o[name]
				}
			default:
				return nil
			}
		}
		return value
	}
	deployment, job := objects["Deployment payonce-api"], objects["Job payonce-migrate"]
	require.NotNil(t, deployment)
	require.NotNil(t, job)

	t.Run("TheDrainFits", func(t *testing.T) {
		t.Parallel()
		grace, _ := at(deployment, "spec", "template", "spec", "terminationGracePeriodSeconds").(int)
		api := load(t).Services["api"]
		require.Equal(t, time.Duration(*api.StopGracePeriod), time.Duration(grace)*time.Second, "as Compose has it")
		require.Contains(t, fmt.Sprint(at(deployment, "spec", "template", "spec", "containers", "env")),
			"map[name:DRAIN_DELAY value:5s]", "the contract's")
	})
	t.Run("StripeIsCalledAsOftenAsOneAccountMay", func(t *testing.T) {
		t.Parallel()
		replicas, _ := at(deployment, "spec", "replicas").(int)
		surge, _ := at(deployment, "spec", "strategy", "rollingUpdate", "maxSurge").(int)
		require.Equal(t, []int{3, 1}, []int{replicas, surge})
		env, _ := at(deployment, "spec", "template", "spec", "containers", "env").([]any)
		rps := 25. // of a process that is told nothing
		for _, e := range env {
			if o, ok := e.(object); ok && o["name"] == "STRIPE_RPS" {
				var err error
				rps, err = strconv.ParseFloat(fmt.Sprint(o["value"]), 64)
				require.NoError(t, err)
			}
		}
		require.LessOrEqual(t, float64(replicas+surge)*rps, 25., "Stripe's limit of an account")
	})
	t.Run("NoPodMayMoreThanItNeeds", func(t *testing.T) {
		t.Parallel()
		for name, o := range map[string]object{"api": deployment, "migrate": job} {
			pod := at(o, "spec", "template", "spec")
			require.Equal(t, false, at(pod, "automountServiceAccountToken"), name)
			require.Equal(t, true, at(pod, "securityContext", "runAsNonRoot"), name)
			require.Equal(t, "RuntimeDefault", at(pod, "securityContext", "seccompProfile", "type"), name)
			container := at(pod, "containers", "0")
			require.Equal(t, false, at(container, "securityContext", "allowPrivilegeEscalation"), name)
			require.Equal(t, true, at(container, "securityContext", "readOnlyRootFilesystem"), name)
			require.Equal(t, []any{"ALL"}, at(container, "securityContext", "capabilities", "drop"), name)
			require.NotEmpty(t, at(container, "resources", "limits", "memory"), name)
			require.Regexp(t, `@sha256:[0-9a-f]{64}$`, at(container, "image"), "%s: a tag can be moved", name)
		}
	})
	t.Run("SecretsAreByReference", func(t *testing.T) {
		t.Parallel()
		for name := range objects {
			require.NotContains(t, name, "Secret ", "a secret would be in the repository")
		}
		require.Equal(t, "payonce", at(deployment, "spec", "template", "spec", "containers", "envFrom", "secretRef", "name"))
		require.Equal(t, "payonce-owner", at(job, "spec", "template", "spec", "containers", "env", "valueFrom", "secretKeyRef", "name"),
			"only who migrates owns the tables")
	})
	t.Run("OneProcessAtATimeIsTakenAway", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, 0, at(deployment, "spec", "strategy", "rollingUpdate", "maxUnavailable"))
		require.Equal(t, 1, at(objects["PodDisruptionBudget payonce-api"], "spec", "maxUnavailable"))
		selector := at(deployment, "spec", "selector", "matchLabels")
		require.Equal(t, selector, at(deployment, "spec", "template", "metadata", "labels"))
		for _, name := range []string{"Service payonce-api", "Service payonce-admin"} {
			require.Equal(t, selector, at(objects[name], "spec", "selector"), name)
		}
		for _, name := range []string{"PodDisruptionBudget payonce-api"} {
			require.Equal(t, selector, at(objects[name], "spec", "selector", "matchLabels"), name)
		}
		require.Equal(t, selector, at(objects["NetworkPolicy payonce-api"], "spec", "podSelector", "matchLabels"))
		require.Equal(t, at(job, "spec", "template", "metadata", "labels"),
			at(objects["NetworkPolicy payonce-migrate"], "spec", "podSelector", "matchLabels"))
		require.Equal(t, at(objects["Service payonce-admin"], "metadata", "labels"),
			at(objects["ServiceMonitor payonce"], "spec", "selector", "matchLabels"))
		label, _ := at(objects["ServiceMonitor payonce"], "spec", "jobLabel").(string)
		labels, _ := at(objects["Service payonce-admin"], "metadata", "labels").(object)
		require.Equal(t, "payonce", labels[label], "the alerts ask for job=\"payonce\"")
	})
}

// TestKubernetesHasTheAlerts: the rules for the operator are those that Prometheus is tested with, line for line.
func TestKubernetesHasTheAlerts(t *testing.T) {
	t.Parallel()
	const file = kubernetes + "/prometheus-operator/rules.yaml"
	var b strings.Builder
	b.WriteString("# deploy/prometheus/rules.yml as the operator reads it, line for line.\n" +
		"apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: payonce\nspec:\n")
	for line := range strings.Lines(text(t, "../../deploy/prometheus/rules.yml")) {
		if strings.TrimSpace(line) != "" {
			b.WriteString("  ")
		}
		b.WriteString(line)
	}
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
	}
	require.Equal(t, b.String(), text(t, file), "go test -C proof ./deploy -run TestKubernetesHasTheAlerts -update")
}

// rendered is what kubectl apply -k would send.
func rendered(t *testing.T) string {
	t.Helper()
	return string(tool(t, nil, "kustomize", "build", kubernetes+"/example"))
}

// conforms fails if a manifest does not conform to the schemas in a folder.
func conforms(t *testing.T, schemas, manifests string) error {
	t.Helper()
	cmd := toolCommand(t, "kubeconform", "-strict", "-summary", "-schema-location",
		schemas+"/{{ .ResourceKind }}{{ .KindSuffix }}.json")
	cmd.Stdin = strings.NewReader(manifests)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if !bytes.Contains(out, []byte("Invalid: 0, Errors: 0, Skipped: 0")) {
		return fmt.Errorf("kubeconform: %s", out)
	}
	return nil
}

func tool(t *testing.T, stdin io.Reader, name string, args ...string) []byte {
	t.Helper()
	cmd := toolCommand(t, name, args...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = stdin, &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s: %s", name, stderr.String())
	return out
}

func toolCommand(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), "go", append([]string{"tool", "-modfile=../../tools/kubernetes.mod", name}, args...)...)
}

// The modules in which the schemas are, and their checksums. Nothing of them is compiled.
var schemaModules = map[string]string{
	"k8s.io/kubernetes@v1.37.2":                                  "h1:A2VDEiObzkYqFTKhSsn0ZEb0RlLEXpHWj93gi2HqEwE=",
	"github.com/prometheus-operator/prometheus-operator@v0.85.0": "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
}

// kubernetesSchemas makes JSON schemas as kubeconform reads them, from the OpenAPI document of Kubernetes and from the
// operator's own resource definitions, and returns their folder.
func kubernetesSchemas(t *testing.T) string {
	t.Helper()
	dirs := map[string]string{}
	for _, module := range slices.Sorted(maps.Keys(schemaModules)) {
		cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
		out, err := cmd.Output()
		require.NoError(t, err, "%s: %s", module, out)
		var got struct{ Dir, Sum string }
		require.NoError(t, json.Unmarshal(out, &got))
		require.Equal(t, schemaModules[module], got.Sum, module)
		name, _, _ := strings.Cut(module, "@")
		dirs[filepath.Base(name)] = got.Dir
	}
	to := t.TempDir()
	write := func(name string, schema any) {
		b, err := json.Marshal(schema)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(to, name), b, 0o600))
	}
	var document struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	require.NoError(t, json.Unmarshal([]byte(text(t, dirs["kubernetes"]+"/api/openapi-spec/swagger.json")), &document))
	for _, definition := range document.Definitions {
		strictly(definition)
	}
	write("definitions.json", map[string]any{"definitions": document.Definitions})
	for name, definition := range document.Definitions {
		kinds, _ := definition["x-kubernetes-group-version-kind"].([]any)
		for _, kind := range kinds {
			k, _ := kind.(map[string]any)
			write(schemaName(k["kind"], k["group"], k["version"]),
				map[string]any{"$ref": "file://" + to + "/definitions.json#/definitions/" + name})
		}
	}
	for _, resource := range []string{"servicemonitors", "prometheusrules"} {
		var crd struct {
			Spec struct {
				Group    string
				Names    struct{ Kind string }
				Versions []struct {
					Name   string
					Schema struct {
						OpenAPIV3Schema map[string]any `yaml:"openAPIV3Schema"`
					}
				}
			}
		}
		require.NoError(t, yaml.Unmarshal([]byte(text(t, dirs["prometheus-operator"]+
			"/example/prometheus-operator-crd/monitoring.coreos.com_"+resource+".yaml")), &crd))
		for _, version := range crd.Spec.Versions {
			strictly(version.Schema.OpenAPIV3Schema)
			write(schemaName(crd.Spec.Names.Kind, crd.Spec.Group, version.Name), version.Schema.OpenAPIV3Schema)
		}
	}
	return to
}

func schemaName(kind, group, version any) string {
	first, _, _ := strings.Cut(fmt.Sprint(group), ".")
	if first != "" {
		first += "-"
	}
	return strings.ToLower(fmt.Sprintf("%s-%s%s.json", kind, first, version))
}

// strictly makes a schema refuse what it does not name, and take a number where Kubernetes takes a number or a text.
func strictly(schema any) {
	switch s := schema.(type) {
	case map[string]any:
		if s["format"] == "int-or-string" || s["x-kubernetes-int-or-string"] == true {
			delete(s, "format")
			s["type"] = []any{"string", "integer"}
		}
		if s["type"] == "object" && s["properties"] != nil && s["additionalProperties"] == nil {
			s["additionalProperties"] = false
		}
		for _, value := range s {
			strictly(value)
		}
	case []any:
		for _, value := range s {
			strictly(value)
		}
	}
}
