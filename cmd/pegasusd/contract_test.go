package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"pegasus/backend/control"
)

// contract is a daemon's description of its API, as JSON.
type contract struct {
	Paths map[string]map[string]struct {
		OperationID string `json:"operationId"`
		Responses   map[string]struct {
			Content map[string]struct{ Schema any }
		}
		RequestBody any
	}
}

// conversation is the requests of one operation: a valid one, and others that the daemon refuses.
type conversation struct {
	path  string // in place of the operation's, with its parameters
	body  string // empty: none
	wrong []wrongRequest
}

type wrongRequest struct {
	path, body string
	status     int
}

// conversations has a row for each operation of the API, in an order in which the valid requests succeed.
var conversations = []struct {
	id string
	conversation
}{
	{"status", conversation{path: "/v1/status"}},
	{"create-domain", conversation{path: "/v1/domains", body: `{"domain":"pod","settings":{"credits":"300"},"holder":"one"}`, wrong: []wrongRequest{
		{body: `{"settings":{}}`, status: 422}, {body: `{"domain":"x","colour":"red"}`, status: 422}, {body: `{"domain":7}`, status: 422},
		{body: `{"domain":"x","settings":{"credits":"0"}}`, status: 422}, {body: `{"domain":"../x"}`, status: 422}, {body: `{"domain":"x","expires_ns":-1}`, status: 422},
	}}},
	{"list-domains", conversation{path: "/v1/domains"}},
	{"show-domain", conversation{path: "/v1/domains/pod", wrong: []wrongRequest{{path: "/v1/domains/none", status: 404}}}},
	{"set", conversation{path: "/v1/domains/pod", body: `{"settings":{"credits":"400"}}`, wrong: []wrongRequest{
		{path: "/v1/domains/none", body: `{"settings":{"credits":"1"}}`, status: 404}, {body: `{"settings":{"credits":400}}`, status: 422},
		{body: `{"Settings":{"credits":"7"}}`, status: 422}, {body: `{"settings":{"credits":"many"}}`, status: 422}, {body: `{"settings":{"colour":"red"}}`, status: 422}, {body: `[]`, status: 422}, {body: `{`, status: 400},
	}}},
	{"explain-domain", conversation{path: "/v1/domains/pod/explanation", wrong: []wrongRequest{{path: "/v1/domains/none/explanation", status: 404}}}},
	{"explain-domains", conversation{path: "/v1/explanations"}},
	{"renew-lease", conversation{path: "/v1/domains/pod/lease?holder=one", body: `{"expires_ns":3600000000000}`, wrong: []wrongRequest{
		{path: "/v1/domains/pod/lease?holder=two", body: `{}`, status: 404}, {body: `{"expires_ns":"1h"}`, status: 422}, {body: `{"expires_ns":1.5}`, status: 422},
	}}},
	{"hold-domain", conversation{path: "/v1/domains/pod/hold", body: `{}`, wrong: []wrongRequest{{body: `{"credits":-1}`, status: 422}, {path: "/v1/domains/a%2Fb/hold", body: `{}`, status: 422}}}},
	{"show-config", conversation{path: "/v1/config"}},
	{"show-log", conversation{path: "/v1/log"}},
	{"set-log", conversation{path: "/v1/log", body: `{"level":"warn"}`, wrong: []wrongRequest{
		{body: `{"level":"loud"}`, status: 422}, {body: `{}`, status: 422}, {body: `{"level":3}`, status: 422}, {body: `{"level":"info","at":1}`, status: 422},
	}}},
	{"show-history", conversation{path: "/v1/history?domain=pod", wrong: []wrongRequest{{path: "/v1/history?domain=none", status: 404}}}},
	{"check-fit", conversation{path: "/v1/fits", body: `{"settings":{"credits":"300","slo":"400"},"predict":true}`, wrong: []wrongRequest{
		{body: `{"settings":{"credits":"0"}}`, status: 422}, {body: `{"settings":{"accelerator":"gpu9"}}`, status: 422}, {body: `{"demand":2}`, status: 422}, {body: `{"kernel_ns":-1}`, status: 422}, {body: `{"simulate_s":3600}`, status: 422},
	}}},
	{"list-accelerators", conversation{path: "/v1/accelerators"}},
	{"switch-policy", conversation{path: "/v1/accelerators?accelerator=soft0", body: `{"name":"rr"}`, wrong: []wrongRequest{
		{body: `{"Name":"none"}`, status: 422}, {body: `{"name":"none","Mode":"paper"}`, status: 422}, {body: `{"name":"fastest"}`, status: 422}, {body: `{"mode":"slow"}`, status: 422}, {path: "/v1/accelerators?accelerator=gpu9", body: `{"name":"rr"}`, status: 404}, {body: `"rr"`, status: 422},
	}}},
	{"reload", conversation{path: "/v1/reload"}},
	{"follow-events", conversation{path: "/v1/events"}},
	{"follow-live", conversation{path: "/v1/live"}},
	{"follow-timeline", conversation{path: "/v1/timeline"}},
	{"follow-trace", conversation{path: "/v1/trace?accelerator=soft0&used=true", wrong: []wrongRequest{{path: "/v1/trace?accelerator=gpu9", status: 422}, {path: "/v1/trace?used=perhaps", status: 422}}}},
	{"release-lease", conversation{path: "/v1/domains/pod/lease?holder=one", wrong: []wrongRequest{{path: "/v1/domains/pod/lease?holder=two", status: 404}}}},
	{"remove-domain", conversation{path: "/v1/domains/pod?mode=end", wrong: []wrongRequest{{path: "/v1/domains/none", status: 404}, {path: "/v1/domains/pod?mode=now", status: 422}}}},
	{"shutdown", conversation{path: "/v1/shutdown", wrong: []wrongRequest{{path: "/v1/shutdown?if_idle=perhaps", status: 422}, {path: "/v1/shutdown?if_idle=true", status: 409}}}},
}

// The running daemon answers as in its description, and refuses every request that does not fit, which changes nothing.
func TestContract(t *testing.T) {
	h := newHost(t, twoDomains)
	h.guest("a").must("ping") // so that lists have entries
	api := &caller{t: t, path: filepath.Join(h.dir, control.SocketName)}
	status, _, spec := api.send("GET", "/v1/openapi.json", "")
	if status != 200 {
		t.Fatalf("the description: %d", status)
	}
	var described contract
	if err := json.Unmarshal(spec, &described); err != nil {
		t.Fatal(err)
	}
	schemas := newSchemas(t, spec)
	for _, wrong := range []string{"{}", `{"name":7}`, "[]"} {
		if schemas.check("Domain", []byte(wrong)) == nil {
			t.Fatalf("%s passes for a domain", wrong)
		}
	}
	var ids []string
	methods := map[string]string{}
	for path, item := range described.Paths {
		for method, op := range item {
			ids = append(ids, op.OperationID)
			methods[op.OperationID] = strings.ToUpper(method) + " " + path
		}
	}
	for _, c := range conversations {
		t.Run(c.id, func(t *testing.T) {
			method, path, ok := strings.Cut(methods[c.id], " ")
			if !ok {
				t.Fatal("the operation is not in the description")
			}
			at := *api
			at.t = t
			before := at.state()
			answers := described.Paths[path][strings.ToLower(method)].Responses
			for _, w := range c.wrong {
				if w.path == "" {
					w.path = c.path
				}
				status, kind, body := at.send(method, w.path, w.body)
				if status != w.status || kind != "application/problem+json" {
					t.Errorf("%s %s %s: %d, %s %s; want %d", method, w.path, w.body, status, kind, body, w.status)
				} else if err := schemas.check("Error", body); err != nil {
					t.Errorf("%s %s: the error is %s: %v", method, w.path, body, err)
				} else if _, ok := answers[fmt.Sprint(status)].Content[kind]; !ok {
					t.Errorf("%s %s: the description has no answer %d of %s", method, w.path, status, kind)
				}
			}
			if c.body != "" {
				huge := `{"settings":{"x":"` + strings.Repeat("x", control.MaxRequest) + `"}}`
				if status, _, body := at.send(method, c.path, huge); status != 413 {
					t.Errorf("a body of %d bytes: %d %s", len(huge), status, body)
				}
			}
			if after := at.state(); after != before {
				t.Errorf("refused requests have changed the daemon from\n%s\nto\n%s", before, after)
			}
			status, kind, body := at.send(method, c.path, c.body)
			answer, ok := answers[fmt.Sprint(status)]
			if !ok || status >= 300 {
				t.Fatalf("%d %s", status, body)
			}
			if len(answer.Content) == 0 {
				if len(body) > 0 {
					t.Errorf("an answer that is described as empty: %s", body)
				}
				return
			}
			content, ok := answer.Content[kind]
			if !ok {
				t.Fatalf("the answer is %s", kind)
			}
			for _, line := range splitAnswer(kind, body) {
				if err := schemas.checkAgainst(content.Schema, line); err != nil {
					t.Errorf("the answer is %s: %v", line, err)
				}
			}
		})
		ids = slices.DeleteFunc(ids, func(id string) bool { return id == c.id })
	}
	if len(ids) > 0 {
		t.Errorf("operations without a row: %v", ids)
	}
}

// With the token to view, each operation that changes something is denied, with a request that would succeed, and
// changes nothing. Methods and paths that are no operation's change nothing either, with the token to operate.
func TestViewChangesNothing(t *testing.T) {
	at, dir := loopback(), t.TempDir()
	config := fmt.Sprintf("[api]\nlisten = %q\n", at)
	for _, role := range []string{"view", "operate"} {
		path := filepath.Join(dir, role)
		if err := os.WriteFile(path, []byte(role+"-0123456789abcdef\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		config += fmt.Sprintf("%s_token = %q\n", role, path)
	}
	h := newHost(t, twoDomains+config+"[[domain]]\nname = \"pod\"\n")
	h.guest("a").must("ping")
	api := &caller{t: t, path: filepath.Join(h.dir, control.SocketName)}
	_, _, spec := api.send("GET", "/v1/openapi.json", "")
	var described contract
	if err := json.Unmarshal(spec, &described); err != nil {
		t.Fatal(err)
	}
	schemas := newSchemas(t, spec)
	before := api.state()
	remote := func(role string) *caller { return &caller{t: t, tcp: at, token: role + "-0123456789abcdef"} }
	denied := 0
	for path, item := range described.Paths {
		for method, op := range item {
			method = strings.ToUpper(method)
			i := slices.IndexFunc(conversations, func(c struct {
				id string
				conversation
			}) bool {
				return c.id == op.OperationID
			})
			if i < 0 {
				t.Errorf("%s: no row in conversations", op.OperationID)
				continue
			}
			want := 403
			if method == "GET" && op.OperationID != "follow-trace" || op.OperationID == "check-fit" { // recording costs decisions time
				want = 200
			} else {
				denied++
			}
			c := conversations[i]
			status, kind, body := remote("view").send(method, c.path, c.body)
			if status != want {
				t.Errorf("%s with the token to view: %d %s; want %d", op.OperationID, status, body, want)
			} else if want == 403 {
				if err := schemas.check("Error", body); err != nil || kind != "application/problem+json" {
					t.Errorf("%s: the error is %s %s: %v", op.OperationID, kind, body, err)
				}
			}
			for _, other := range []string{"PUT", "DELETE", "POST", "PATCH", "OPTIONS", "TRACE", "BREW"} {
				if _, ok := item[strings.ToLower(other)]; ok {
					continue
				}
				if status, _, body := remote("operate").send(other, c.path, c.body); status != 404 || schemas.check("Error", body) != nil {
					t.Errorf("%s %s: %d %s; want 404 and an error", other, path, status, body)
				}
			}
		}
	}
	if denied < 9 {
		t.Errorf("%d operations were denied, want 9 or more", denied)
	}
	for _, path := range []string{"/", "/v0/domains", "/v1", "/v1/domains/", "/v1/domains/pod/", "/v1/domains/../log", "//v1/log", "/v1/%6cog/x", "/v1/domains/%00"} {
		for _, method := range []string{"POST", "PATCH", "DELETE"} {
			if status, _, body := remote("operate").send(method, path, `{}`); status < 300 {
				t.Errorf("%s %s: %d %s", method, path, status, body)
			}
		}
	}
	if after := api.state(); after != before {
		t.Errorf("refused requests have changed the daemon from\n%s\nto\n%s", before, after)
	}
}

// A connection whose head or body does not arrive is closed after some seconds, and changes nothing. Others are answered
// meanwhile.
func TestSlowRequests(t *testing.T) {
	h := newHost(t, twoDomains)
	api := &caller{t: t, path: filepath.Join(h.dir, control.SocketName)}
	before := api.state()
	body := `{"settings":{"credits":"7"}}`
	head := fmt.Sprintf("PATCH /v1/domains/a HTTP/1.1\r\nHost: pegasus\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	var all sync.WaitGroup
	for name, text := range map[string]string{"head": head, "body": head + "\r\n" + body[:len(body)-1], "empty": "", "chunks": strings.Replace(head, fmt.Sprintf("Content-Length: %d", len(body)), "Transfer-Encoding: chunked", 1) + "\r\n1c\r\n" + body} {
		all.Go(func() {
			conn, err := net.Dial("unix", api.path)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			start := time.Now()
			go func() { // a byte now and then keeps the connection in use
				for i := range len(text) {
					if i > len(text)-20 {
						time.Sleep(700 * time.Millisecond)
					}
					if _, err := conn.Write([]byte{text[i]}); err != nil {
						return
					}
				}
			}()
			conn.SetReadDeadline(start.Add(time.Minute))
			answer, err := io.ReadAll(conn)
			if err != nil && !errors.Is(err, syscall.ECONNRESET) || bytes.Contains(answer, []byte(" 200 ")) {
				t.Errorf("%s: after %v %q, %v; want the end of the connection", name, time.Since(start), answer, err)
			}
			t.Logf("%s: %v, %.200q", name, time.Since(start).Round(time.Millisecond), answer)
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for waiting := true; waiting; {
		if after := api.state(); after != before {
			t.Fatalf("slow requests have changed the daemon from\n%s\nto\n%s", before, after)
		}
		select {
		case <-done:
			waiting = false
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// splitAnswer returns the JSON values of an answer.
func splitAnswer(kind string, body []byte) [][]byte {
	if kind != control.LinesType {
		return [][]byte{body}
	}
	return bytes.Split(bytes.TrimSpace(body), []byte("\n"))
}

// caller sends requests without a library.
type caller struct {
	t          *testing.T
	path       string // of the control socket
	tcp, token string // instead: an address, and the token for it
}

// send returns the status, the media type and the body of an answer; of a stream the beginning.
func (c *caller) send(method, path, body string) (int, string, []byte) {
	c.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		if c.tcp != "" {
			return new(net.Dialer).DialContext(ctx, "tcp", c.tcp)
		}
		return new(net.Dialer).DialContext(ctx, "unix", c.path)
	}}}
	ctx, cancel := context.WithTimeout(bg, soon)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, method, "http://pegasus"+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if body != "" {
		q.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		q.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := client.Do(q)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	kind := resp.Header.Get("Content-Type")
	if kind == control.LinesType {
		end := time.AfterFunc(500*time.Millisecond, cancel)
		defer end.Stop()
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil && ctx.Err() == nil {
		c.t.Fatal(err)
	}
	if kind == control.LinesType { // the last line may be cut off
		data = data[:bytes.LastIndexByte(data, '\n')+1]
	}
	return resp.StatusCode, kind, data
}

// state returns the settings of the daemon.
func (c *caller) state() string {
	c.t.Helper()
	var domains []control.Domain
	var accelerators []control.Accelerator
	for path, v := range map[string]any{"/v1/domains": &domains, "/v1/accelerators": &accelerators} {
		if _, _, body := c.send("GET", path, ""); json.Unmarshal(body, v) != nil {
			c.t.Fatalf("%s: %s", path, body)
		}
	}
	_, _, level := c.send("GET", "/v1/log", "")
	text := string(level)
	for _, d := range domains {
		text += fmt.Sprintln(d.Name, d.Credits, d.Owner, d.Leases, d.Programs, d.MemoryQuota, d.Removing)
	}
	for _, a := range accelerators {
		text += fmt.Sprintln(a.Name, a.Policy, a.Mode)
	}
	return text
}

// schemas checks values against the schemas of a description.
type schemas struct {
	t *testing.T
	c *jsonschema.Compiler
	n int
}

func newSchemas(t *testing.T, spec []byte) *schemas {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(spec))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource("http://pegasus/openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	return &schemas{t: t, c: c}
}

// check checks a value against a named schema.
func (s *schemas) check(name string, value []byte) error {
	return s.checkAgainst(map[string]any{"$ref": "#/components/schemas/" + name}, value)
}

// checkAgainst checks a value against a schema that refers to those of the description.
func (s *schemas) checkAgainst(schema any, value []byte) error {
	data, err := json.Marshal(schema)
	if err != nil {
		return err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(bytes.ReplaceAll(data, []byte(`"#/components`), []byte(`"http://pegasus/openapi.json#/components`))))
	if err != nil {
		return err
	}
	s.n++
	name := fmt.Sprintf("http://pegasus/part-%d.json", s.n)
	if err := s.c.AddResource(name, doc); err != nil {
		return err
	}
	compiled, err := s.c.Compile(name)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return err
	}
	return compiled.Validate(v)
}
