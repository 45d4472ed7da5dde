//go:build soak

package operate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pegasus/internal/testkit"
)

const packaging = "../../packaging/"

// Promtool accepts the rules, and each alert fires after its time with its cause, and not without.
func TestOperatePrometheusRules(t *testing.T) {
	promtool(t, nil, "check", "rules", packaging+"prometheus/pegasus.rules.yml")
	promtool(t, nil, "test", "rules", packaging+"prometheus/pegasus.rules.test.yml")
}

// promtool runs a command of promtool, which has to succeed.
func promtool(t *testing.T, input []byte, args ...string) {
	t.Helper()
	cmd := exec.Command("promtool", args...)
	cmd.Stdin = bytes.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v (make operate-test installs it)\n%s", strings.Join(args, " "), err, out)
	} else if input != nil && len(out) > 0 {
		t.Errorf("promtool %s: got remarks, want none:\n%s", strings.Join(args, " "), out)
	}
}

// prometheusConfig is a host whose turns last so long that the domain alpha waits for seconds, and never has its objective.
const prometheusConfig = `
[api]
listen     = "%s"
view_token = "%s"

[[accelerator]]
name         = "soft0"
type         = "soft"
memory       = "64MiB"
policy       = "accc"
tick         = "1s"
rotation_cap = "10s"

[[domain]]
name       = "alpha"
credits    = 64
slo        = 900
slo_window = "10s"

[[domain]]
name      = "beta"
credits   = 1024
processes = 1
`

// watched is a host whose daemon a Prometheus scrapes.
type watched struct {
	*topHost
	metrics, server string // URLs
	token           string
	seen            map[string]bool // alerts that have fired
}

// startWatched starts the daemon with its API over TCP, and Prometheus with the rules, which wait for nothing.
func startWatched(t *testing.T) *watched {
	t.Helper()
	if _, err := exec.LookPath("prometheus"); err != nil {
		t.Fatal("prometheus is missing: make operate-test installs it")
	}
	dir, err := os.MkdirTemp("", "pg") // short: socket paths are at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	daemon, server := freeAddress(t), freeAddress(t)
	w := &watched{topHost: &topHost{t: t, dir: dir}, metrics: "http://" + daemon + "/metrics", server: "http://" + server,
		token: strings.Repeat("view-token-", 4), seen: map[string]bool{}}
	w.write("token", w.token)
	w.write("pegasus.toml", fmt.Sprintf(prometheusConfig, daemon, filepath.Join(dir, "token")))
	w.start()
	t.Cleanup(w.stop)

	rules, err := os.ReadFile(packaging + "prometheus/pegasus.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	w.write("rules.yml", regexp.MustCompile(`(?m)^( +for: ).*$`).ReplaceAllString(string(rules), "${1}0s"))
	w.write("prometheus.yml", fmt.Sprintf(`
global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}
rule_files: [rules.yml]
scrape_configs:
  - job_name: pegasus
    authorization: {credentials_file: token}
    static_configs:
      - targets: ["%s"]
`, daemon))
	promtool(t, nil, "check", "config", filepath.Join(dir, "prometheus.yml"))
	prometheus := exec.Command("prometheus", "--config.file", filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path", filepath.Join(dir, "tsdb"),
		"--web.listen-address", server, "--log.level", "error")
	prometheus.Stderr = os.Stderr
	w.background(prometheus)
	testkit.Within(t, time.Minute, "Prometheus is ready", func() bool {
		answer, err := http.Get(w.server + "/-/ready")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return w
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (w *watched) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// background starts a program that ends with the test at the latest. end ends it before.
func (w *watched) background(cmd *exec.Cmd) (end func()) {
	w.t.Helper()
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	ended := false
	end = func() {
		if !ended {
			ended = true
			cmd.Process.Kill()
			cmd.Wait()
		}
	}
	w.t.Cleanup(end)
	return end
}

func (w *watched) guest(domain string, program ...string) *exec.Cmd {
	return exec.Command(testkit.Built(w.t, "bin/pegasus"), append([]string{"run", "--runtime-dir", w.dir, "--domain", domain, "--"}, program...)...)
}

func (w *watched) busy(domain string) *exec.Cmd {
	return w.guest(domain, testkit.Built(w.t, "bench/busy"), "--quiet", "--queue", "8", "--seconds", "1000")
}

// query returns the series of an expression, at present.
func (w *watched) query(expression string) (series []map[string]string) {
	w.t.Helper()
	answer, err := http.Get(w.server + "/api/v1/query?query=" + url.QueryEscape(expression))
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	var body struct {
		Status, Error string
		Data          struct {
			Result []struct{ Metric map[string]string }
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		w.t.Fatal(err)
	}
	if body.Status != "success" {
		w.t.Errorf("query %s: %s", expression, body.Error)
	}
	for _, r := range body.Data.Result {
		series = append(series, r.Metric)
	}
	return series
}

// fires waits until an alert has fired, for a domain if one is given.
func (w *watched) fires(alert, domain string) {
	w.t.Helper()
	labels := `alertname="` + alert + `",alertstate="firing"`
	if domain != "" {
		labels += `,domain="` + domain + `"`
	}
	begin := time.Now()
	// An alert that fires for a moment counts, too.
	testkit.Within(w.t, 2*time.Minute, alert+" fires", func() bool { return len(w.query("last_over_time(ALERTS{"+labels+"}[2m])")) > 0 })
	w.seen[alert] = true
	w.t.Logf("%s fired after %v", alert, time.Since(begin).Round(100*time.Millisecond))
}

// quiet fails if one of these alerts has fired.
func (w *watched) quiet(alerts ...string) {
	w.t.Helper()
	for _, series := range w.query(`last_over_time(ALERTS{alertname=~"` + strings.Join(alerts, "|") + `"}[5m])`) {
		w.t.Errorf("%s fires without its cause: %v", series["alertname"], series)
	}
}

// pegasus runs a command and returns its error.
func (w *watched) pegasus(args ...string) error {
	return exec.Command(testkit.Built(w.t, "bin/pegasus"), append([]string{args[0], "--runtime-dir", w.dir}, args[1:]...)...).Run()
}

// Prometheus scrapes the daemon, and each alert whose cause a test can bring about fires by it. The only other one is
// PegasusTimeNotCharged: its cause would be an error of Pegasus.
func TestOperatePrometheus(t *testing.T) {
	w := startWatched(t)
	testkit.Within(t, time.Minute, "Prometheus has scraped the daemon", func() bool { return len(w.query(`up{job="pegasus"} == 1`)) == 1 })
	request, _ := http.NewRequest(http.MethodGet, w.metrics, nil)
	request.Header.Set("Authorization", "Bearer "+w.token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	var metrics bytes.Buffer
	metrics.ReadFrom(answer.Body)
	answer.Body.Close()
	promtool(t, metrics.Bytes(), "check", "metrics")

	time.Sleep(3 * time.Second) // several evaluations
	w.quiet("Pegasus.*")

	// alpha waits for 16 s of 17, and shares less than its objective.
	endAlpha, endBeta := w.background(w.busy("alpha")), w.background(w.busy("beta"))
	w.fires("PegasusShareBelowEntitlement", "alpha")
	w.fires("PegasusStarvation", "alpha")
	w.fires("PegasusObjectiveViolated", "alpha")

	w.quiet("PegasusGuestRefused", "PegasusConfigurationRefused", "PegasusMemoryPressure", "PegasusWorkerCrashLoop", "PegasusDown", "PegasusTimeNotCharged")
	w.dashboard()
	if err := w.busy("beta").Run(); err == nil {
		t.Error("beta has two processes, want one at most")
	}
	w.fires("PegasusGuestRefused", "")
	endAlpha()
	endBeta()

	config, err := os.ReadFile(filepath.Join(w.dir, "pegasus.toml"))
	if err != nil {
		t.Fatal(err)
	}
	w.write("pegasus.toml", string(config)+"\n[[domain]]\nname = \"alpha\"\n")
	if w.pegasus("reload") == nil {
		t.Error("the daemon reads a domain that is declared twice")
	}
	w.fires("PegasusConfigurationRefused", "")
	w.write("pegasus.toml", string(config))
	if err := w.pegasus("reload"); err != nil {
		t.Errorf("reload: %v", err)
	}
	testkit.Within(t, time.Minute, "PegasusConfigurationRefused ends", func() bool {
		return len(w.query(`ALERTS{alertname="PegasusConfigurationRefused"}`)) == 0
	})

	endFull := w.background(w.guest("full", w.compiled("full")))
	w.fires("PegasusMemoryPressure", "")
	endFull()

	for range 5 {
		end := w.background(w.busy("dying"))
		w.killWorker("dying")
		end()
	}
	w.fires("PegasusWorkerCrashLoop", "")

	w.quiet("PegasusDown", "PegasusTimeNotCharged")
	w.stop()
	w.fires("PegasusDown", "")
	w.seen["PegasusTimeNotCharged"] = true

	rules, err := os.ReadFile(packaging + "prometheus/pegasus.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)- alert: (\w+)`).FindAllStringSubmatch(string(rules), -1) {
		if !w.seen[m[1]] {
			t.Errorf("no cause of %s was tried", m[1])
		}
	}
}

// compiled compiles a program of testdata against Pegasus's library.
func (w *watched) compiled(name string) string {
	w.t.Helper()
	out := filepath.Join(w.dir, name)
	cmd := exec.Command("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-I../../guest/include", "testdata/"+name+".c",
		"-L"+filepath.Dir(testkit.Built(w.t, "guest/libcuda.so")), "-lcuda", "-o", out)
	if said, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("compile %s: %v\n%s", name, err, said)
	}
	return out
}

var servedBy = regexp.MustCompile(`is served by worker (\d+)`)

// killWorker kills the worker of the domain's latest process, and waits for the event.
func (w *watched) killWorker(domain string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, testkit.Built(w.t, "bin/pegasus"), "events", "--json", "--runtime-dir", w.dir)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	defer cmd.Wait()
	defer cancel()
	killed := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var e struct{ Kind, Domain, Text string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.Domain != domain {
			continue
		}
		if m := servedBy.FindStringSubmatch(e.Text); m != nil {
			pid, _ := strconv.Atoi(m[1])
			if syscall.Kill(pid, syscall.SIGKILL) == nil {
				killed = pid
			}
		} else if e.Kind == "crash" && killed != 0 {
			return
		}
	}
	w.t.Fatalf("no worker of %s was killed and noted", domain)
}

// dashboard runs every expression of the dashboard. Only those about things that this host does not have may give no data.
func (w *watched) dashboard() {
	w.t.Helper()
	text, err := os.ReadFile(packaging + "grafana/pegasus.json")
	if err != nil {
		w.t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		w.t.Fatal(err)
	}
	variables := strings.NewReplacer("$job", ".+", "$instance", ".+", "$accelerator", ".+", "$domain", ".+", "$__rate_interval", "10s")
	var empty []string
	n := 0
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			n++
			if len(w.query(variables.Replace(target.Expr))) == 0 {
				empty = append(empty, p.Title)
			}
		}
	}
	if want := []string{"Virtual CPUs that wait"}; !slices.Equal(empty, want) {
		w.t.Errorf("of %d expressions, those of these panels give no data: %q, want %q", n, empty, want)
	}
	w.t.Logf("%d expressions of the dashboard give data", n-len(empty))
}
