package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
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
		{body: `{"settings":{"credits":"many"}}`, status: 422}, {body: `{"settings":{"colour":"red"}}`, status: 422}, {body: `[]`, status: 422}, {body: `{`, status: 400},
	}}},
	{"explain-domain", conversation{path: "/v1/domains/pod/explanation", wrong: []wrongRequest{{path: "/v1/domains/none/explanation", status: 404}}}},
	{"explain-domains", conversation{path: "/v1/explanations"}},
	{"renew-lease", conversation{path: "/v1/domains/pod/lease?holder=one", body: `{"expires_ns":3600000000000}`, wrong: []wrongRequest{
		{path: "/v1/domains/pod/lease?holder=two", body: `{}`, status: 404}, {body: `{"expires_ns":"1h"}`, status: 422}, {body: `{"expires_ns":1.5}`, status: 422},
	}}},
	{"hold-domain", conversation{path: "/v1/domains/pod/hold", body: `{}`, wrong: []wrongRequest{{body: `{"credits":-1}`, status: 422}, {path: "/v1/domains/a%2Fb/hold", body: `{}`, status: 422}}}},
	{"list-accelerators", conversation{path: "/v1/accelerators"}},
	{"switch-policy", conversation{path: "/v1/accelerators?accelerator=soft0", body: `{"name":"rr"}`, wrong: []wrongRequest{
		{body: `{"name":"fastest"}`, status: 422}, {body: `{"mode":"slow"}`, status: 422}, {path: "/v1/accelerators?accelerator=gpu9", body: `{"name":"rr"}`, status: 404}, {body: `"rr"`, status: 422},
	}}},
	{"reload", conversation{path: "/v1/reload"}},
	{"follow-events", conversation{path: "/v1/events"}},
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
			for _, w := range c.wrong {
				if w.path == "" {
					w.path = c.path
				}
				status, kind, body := at.send(method, w.path, w.body)
				if status != w.status || kind != "application/problem+json" {
					t.Errorf("%s %s %s: %d, %s %s; want %d", method, w.path, w.body, status, kind, body, w.status)
				} else if err := schemas.check("Error", body); err != nil {
					t.Errorf("%s %s: the error is %s: %v", method, w.path, body, err)
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
			answers := described.Paths[path][strings.ToLower(method)].Responses
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

// splitAnswer returns the JSON values of an answer.
func splitAnswer(kind string, body []byte) [][]byte {
	if kind != control.LinesType {
		return [][]byte{body}
	}
	return bytes.Split(bytes.TrimSpace(body), []byte("\n"))
}

// caller sends requests without a library.
type caller struct {
	t    *testing.T
	path string
}

// send returns the status, the media type and the body of an answer; of a stream the beginning.
func (c *caller) send(method, path, body string) (int, string, []byte) {
	c.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
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
	text := ""
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
