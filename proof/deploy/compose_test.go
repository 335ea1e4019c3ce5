package deploy_test

import (
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
)

const (
	composeFile = "../../docker-compose.yml"
	dockerfile  = "../../Dockerfile"
)

func TestCompose(t *testing.T) {
	t.Parallel()
	project := load(t)

	t.Run("HasOnePortOfThisMachineOnLoopbackAndOverridable", func(t *testing.T) {
		t.Parallel()
		var published []string
		for name, service := range project.Services {
			for _, port := range service.Ports {
				require.Equal(t, "127.0.0.1", port.HostIP, name)
				published = append(published, name)
			}
		}
		require.Contains(t, published, "nginx")
		for _, line := range strings.Split(text(t, composeFile), "\n") {
			if strings.Contains(line, "127.0.0.1:$") || strings.Contains(line, "ports:") {
				require.Regexp(t, `"127\.0\.0\.1:\$\{[A-Z_]+:-1\d{4}\}:\d+"`, line, "the port cannot be configured")
			}
		}
		// What runs by default needs one port; profiles may add their own.
		var always []string
		for name, service := range project.Services {
			if len(service.Profiles) == 0 && len(service.Ports) > 0 {
				always = append(always, name)
			}
		}
		require.Equal(t, []string{"nginx"}, always)
	})

	t.Run("KnowsWhenAServiceIsHealthy", func(t *testing.T) {
		t.Parallel()
		for name, service := range project.Services {
			if service.Restart == "no" {
				continue // runs once
			}
			require.NotNil(t, service.HealthCheck, name)
			require.NotEmpty(t, service.HealthCheck.Test, name)
		}
	})

	t.Run("WaitsForWhatItNeeds", func(t *testing.T) {
		t.Parallel()
		for name, service := range project.Services {
			for on, dependency := range service.DependsOn {
				want := types.ServiceConditionHealthy
				if project.Services[on].Restart == "no" {
					want = types.ServiceConditionCompletedSuccessfully
				}
				require.Equal(t, want, dependency.Condition, "%s on %s", name, on)
			}
		}
	})

	t.Run("PinsItsImages", func(t *testing.T) {
		t.Parallel()
		for name, service := range project.Services {
			_, tag, tagged := strings.Cut(service.Image, ":")
			require.True(t, tagged && tag != "", "%s: %s", name, service.Image)
			if service.Build == nil && !slices.Contains(unpinnable, service.Image) {
				require.NotEqual(t, "latest", tag, name)
			}
		}
	})

	t.Run("GrantsNothingThatIsNotNeeded", func(t *testing.T) {
		t.Parallel()
		for name, service := range project.Services {
			require.True(t, service.ReadOnly, "%s: a root that can be written to", name)
			require.Equal(t, []string{"ALL"}, service.CapDrop, name)
			require.Contains(t, service.SecurityOpt, "no-new-privileges:true", name)
			require.False(t, service.Privileged, name)
			require.NotNil(t, service.Init, "%s: no init to collect its children", name)
			require.NotNil(t, service.StopGracePeriod, name)
			grace := 30 * time.Second
			if delay, ok := service.Environment["DRAIN_DELAY"]; ok {
				before, err := time.ParseDuration(*delay)
				require.NoError(t, err)
				grace += before
			}
			require.Equal(t, grace.String(), service.StopGracePeriod.String(), name)
			require.Empty(t, service.ContainerName, "%s: one name for two copies of the project", name)
			require.Empty(t, service.NetworkMode, name)
		}
	})

	t.Run("LetsNobodyIntoGrafanaAndNothingOut", func(t *testing.T) {
		t.Parallel()
		settings := project.Services["grafana"].Environment
		for name, want := range map[string]string{
			"GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer", "GF_AUTH_BASIC_ENABLED": "false",
			"GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION": "true",
			"GF_ANALYTICS_REPORTING_ENABLED":             "false", "GF_PLUGINS_PREINSTALL_DISABLED": "true",
			"GF_PLUGINS_PUBLIC_KEY_RETRIEVAL_DISABLED": "true",
		} {
			require.NotNil(t, settings[name], name)
			require.Equal(t, want, *settings[name], name)
		}
	})

	// Who has one of the passwords, as of the service's URL, has no other.
	t.Run("GivesEachRoleOfTheDatabaseItsOwnPassword", func(t *testing.T) {
		t.Parallel()
		set, script := project.Services["postgres"].Environment, text(t, "../../deploy/passwords.sh")
		password := map[string]string{} // of each role
		for role, name := range map[string]string{
			"payonce": "POSTGRES_PASSWORD", "payonce_owner": "POSTGRES_OWNER_PASSWORD",
			"payonce_service": "POSTGRES_SERVICE_PASSWORD", "payonce_audit": "POSTGRES_AUDIT_PASSWORD",
		} {
			require.NotNil(t, set[name], name)
			require.NotContains(t, slices.Collect(maps.Values(password)), *set[name], name)
			password[role] = *set[name]
			if role != "payonce" {
				_, kind, _ := strings.Cut(role, "_")
				require.Contains(t, script, "ALTER ROLE "+role+" PASSWORD :'"+kind+"';")
				require.Contains(t, script, "--set "+kind+`="$`+name+`"`)
			}
		}
		for name, service := range project.Services {
			dsn := service.Environment["DATABASE_URL"]
			if dsn == nil {
				continue
			}
			u, err := url.Parse(*dsn)
			require.NoError(t, err, name)
			used, _ := u.User.Password()
			require.Equal(t, password[u.User.Username()], used, name)
			require.NotEqual(t, "payonce", u.User.Username(), "%s is a superuser", name)
		}
	})

	t.Run("RunsTwoReplicasOfTheAPI", func(t *testing.T) {
		t.Parallel()
		api := project.Services["api"]
		require.Equal(t, 2, api.GetScale())
	})
}

// unpinnable are images whose stand-ins, for machines without a registry, have
// no other tag.
var unpinnable = []string{"prom/prometheus:latest"}

func TestComposeNeedsNoVariable(t *testing.T) {
	t.Parallel()
	for _, reference := range regexp.MustCompile(`\$\{[^}]*\}?`).FindAllString(text(t, composeFile), -1) {
		require.Regexp(t, `^\$\{[A-Z0-9_]+:-[^}]+\}$`, reference, "without it, Compose warns about an unset variable")
	}
	require.Empty(t, regexp.MustCompile(`(?m)^.*[^$]\$[A-Za-z_].*$`).FindAllString(text(t, composeFile), 3), "variables without a default")
}

// TestComposeKeepsKeysOfStripe: Stripe is the simulator there, so a key of Stripe's that is in the environment, or in an
// .env made for the service, goes nowhere.
func TestComposeKeepsKeysOfStripe(t *testing.T) {
	t.Parallel()
	project := loadWith(t, []string{"STRIPE_SECRET_KEY=sk_live_hidden", "STRIPE_WEBHOOK_SECRET=whsec_hidden",
		"STRIPE_API_BASE=https://hidden.example.com"})
	for name, service := range project.Services {
		for setting, value := range service.Environment {
			if value != nil {
				require.NotContains(t, *value, "hidden", "%s: %s", name, setting)
			}
		}
	}
	api := project.Services["api"].Environment
	require.Equal(t, "http://stripesim:12111", *api["STRIPE_API_BASE"])
	require.Equal(t, *api["STRIPE_WEBHOOK_SECRET"], *project.Services["stripesim"].Environment["STRIPESIM_WEBHOOK_SECRET"])
}

// TestComposePassesSettingsOn: what the handbook says to change in an incident reaches the service. Unset it stays unset,
// and the service has its default.
func TestComposePassesSettingsOn(t *testing.T) {
	t.Parallel()
	unset := load(t).Services["api"].Environment
	for _, name := range []string{"ADMIN_TOKEN", "RATE_LIMIT_RPS", "STRIPE_RPS"} {
		require.Contains(t, unset, name)
		require.Nil(t, unset[name], name)
		value := loadWith(t, []string{name + "=7"}).Services["api"].Environment[name]
		require.NotNil(t, value, name)
		require.Equal(t, "7", *value, name)
	}
}

// TestHandbookOverridesCompose: the files that docs/operations.md shows for containers are what it says of them.
func TestHandbookOverridesCompose(t *testing.T) {
	t.Parallel()
	_, section, found := strings.Cut(text(t, "../../docs/operations.md"), "\n## In containers\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	files := []string{composeFile}
	for i, fence := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(section, -1) {
		file := filepath.Join(t.TempDir(), strconv.Itoa(i)+".yml")
		require.NoError(t, os.WriteFile(file, []byte(fence[1]), 0o600))
		files = append(files, file)
	}
	require.Len(t, files, 3)

	// The admin address.
	api := loadWith(t, []string{"ADMIN_TOKEN=token"}, files[:2]...).Services["api"]
	require.Equal(t, "token", *api.Environment["ADMIN_TOKEN"])
	require.Len(t, api.Ports, 1)
	require.Equal(t, "127.0.0.1", api.Ports[0].HostIP)
	require.Empty(t, api.Ports[0].Published, "two replicas cannot have the same")
	require.Equal(t, ":"+strconv.Itoa(int(api.Ports[0].Target)), *api.Environment["ADMIN_ADDR"])

	// Stripe itself: an empty STRIPE_API_BASE is none.
	api = loadWith(t, []string{"ADMIN_TOKEN=token", "STRIPE_SECRET_KEY=sk_test_own", "STRIPE_WEBHOOK_SECRET=whsec_own"},
		files...).Services["api"]
	require.Equal(t, "sk_test_own", *api.Environment["STRIPE_SECRET_KEY"])
	require.Equal(t, "whsec_own", *api.Environment["STRIPE_WEBHOOK_SECRET"])
	require.Empty(t, *api.Environment["STRIPE_API_BASE"])
}

func TestDockerfile(t *testing.T) {
	t.Parallel()
	file := text(t, dockerfile)

	t.Run("BuildsWithTheGoOfTheModuleOrNewer", func(t *testing.T) {
		t.Parallel()
		image := regexp.MustCompile(`(?m)^ARG GO_IMAGE=golang:(\d+)\.(\d+)`).FindStringSubmatch(file)
		module := regexp.MustCompile(`(?m)^go (\d+)\.(\d+)`).FindStringSubmatch(text(t, "../../go.mod"))
		require.NotNil(t, image)
		require.NotNil(t, module)
		require.GreaterOrEqual(t, number(image), number(module), "golang:%s.%s for go %s.%s", image[1], image[2],
			module[1], module[2])
	})

	t.Run("EndsAsNobodyWithoutAShell", func(t *testing.T) {
		t.Parallel()
		require.Contains(t, file, "\nARG STATIC_IMAGE=gcr.io/distroless/static-debian12:nonroot\n")
		stages := strings.Split(file, "\nFROM ")
		last := stages[len(stages)-1]
		require.Contains(t, last, "${STATIC_IMAGE} AS api\n")
		for _, stage := range stages {
			if strings.HasPrefix(stage, "${STATIC_IMAGE}") {
				require.Regexp(t, `(?m)^USER 65532:65532$`, stage)
			}
		}
	})

	// Step docker looks into the image itself.
	t.Run("HasTheServiceAloneInTheImageOfTheService", func(t *testing.T) {
		t.Parallel()
		_, last, _ := strings.Cut(file, " AS api\n")
		require.Equal(t, []string{"COPY --from=build /out/api /usr/local/bin/"},
			regexp.MustCompile(`(?m)^(?:COPY|ADD|RUN) .*$`).FindAllString(last, -1))
		for name, service := range load(t).Services {
			if service.Build != nil {
				require.Equal(t, name == "api" || name == "migrate", service.Build.Target == "api", name)
			}
		}
	})

	t.Run("NeedsNoFrontendFromARegistry", func(t *testing.T) {
		t.Parallel()
		require.NotContains(t, file, "syntax=")
	})
}

// load reads the Compose file, or several that are laid over each other, with every profile.
func load(t *testing.T, files ...string) *types.Project {
	t.Helper()
	return loadWith(t, nil, files...)
}

// loadWith is load in an environment.
func loadWith(t *testing.T, env []string, files ...string) *types.Project {
	t.Helper()
	if len(files) == 0 {
		files = []string{composeFile}
	}
	options, err := cli.NewProjectOptions(files, cli.WithProfiles([]string{"*"}), cli.WithEnv(env))
	require.NoError(t, err)
	project, err := options.LoadProject(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, project.Services)
	return project
}

func text(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(b)
}

func number(version []string) string { // "1.26" as 001026, which compares
	pad := func(s string) string { return strings.Repeat("0", 3-len(s)) + s }
	return pad(version[1]) + pad(version[2])
}
