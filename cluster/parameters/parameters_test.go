package parameters

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"pegasus/configs"
)

const head = `"apiVersion":"pegasus.dev/v1","kind":"DomainConfig"`

func TestRead(t *testing.T) {
	got, err := Read([]byte(`{`+head+`,"slo":250,"sloWaitP99":"5ms","priority":-3,"period":"40ms","deadline":"20ms","interactive":true,"memoryGuarantee":"64Mi"}`), Claim)
	want := map[string]string{"slo": "250", "slo_wait_p99": "5ms", "priority": "-3", "period": "40ms", "deadline": "20ms", "interactive": "true", "memory_guarantee": "67108864"}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	got, err = Read([]byte(`{`+head+`,"group":"batch","cpu":"150%","processes":4,"memoryQuota":"1Gi","arena":"64Mi","hostMemory":"256Mi"}`), Class)
	want = map[string]string{"group": "batch", "cpu": "150%", "processes": "4", "memory": "1073741824", "arena": "67108864", "host_memory": "268435456"}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if got, err = Read([]byte(`{`+head+`}`), Claim); err != nil || len(got) != 0 {
		t.Errorf("no fields: got %v, %v", got, err)
	}
}

// Each wrong field is refused by its name.
func TestMistakes(t *testing.T) {
	for _, c := range []struct{ object, want string }{
		{`{` + head + `,"slo":2000}`, "field slo: 2000: must be"},
		{`{` + head + `,"slo":-1}`, "field slo: -1: must be"},
		{`{` + head + `,"slo":1.5}`, "field slo: 1.5: must be a whole number"},
		{`{` + head + `,"slo":"250"}`, `field slo: "250": must be a whole number`},
		{`{` + head + `,"slo":null}`, "field slo: null: must be a whole number"},
		{`{` + head + `,"slo":1e2}`, "field slo: 1e2: must be a whole number"},
		{`{` + head + `,"slo":[1]}`, "field slo: [1]: must be a whole number"},
		{`{` + head + `,"SLO":100}`, "field SLO: unknown; want one of"},
		{`{` + head + `,"slo":1,"slo":2}`, "field slo: given twice"},
		{`{` + head + `,"credits":512}`, "field credits: unknown"},
		{`{` + head + `,"socket_mode":"0777"}`, "field socket_mode: unknown"},
		{`{` + head + `,"accelerator":"gpu1"}`, "field accelerator: unknown"},
		{`{` + head + `,"deadline":5}`, "field deadline: 5: must be a string"},
		{`{` + head + `,"deadline":null}`, "field deadline: null: must be a string"},
		{`{` + head + `,"deadline":"soon"}`, `field deadline: "soon": must be`},
		{`{` + head + `,"deadline":"5"}`, `field deadline: "5": must be`},
		{`{` + head + `,"period":"2h"}`, `field period: "2h": must be`},
		{`{` + head + `,"priority":100000000}`, "field priority: 100000000: must be"},
		{`{` + head + `,"interactive":"yes"}`, `field interactive: "yes": must be true or false`},
		{`{` + head + `,"memoryGuarantee":64}`, "field memoryGuarantee: 64: must be a quantity in quotes"},
		{`{` + head + `,"memoryGuarantee":"64MiB"}`, `field memoryGuarantee: "64MiB": must be a quantity`},
		{`{` + head + `,"memoryGuarantee":"100m"}`, `field memoryGuarantee: "100m": must be a whole number of bytes`},
		{`{` + head + `,"memoryGuarantee":"-1Mi"}`, `field memoryGuarantee: "-1Mi": must be a whole number of bytes`},
		{`{` + head + `,"memoryQuota":"1Gi"}`, "field memoryQuota: only a DeviceClass may give it"},
		{`{` + head + `,"group":"all"}`, "field group: only a DeviceClass may give it"},
		{`{` + head + `,"cpu":"50%","slo":-1}`, "field cpu: only a DeviceClass may give it; remove it from the claim; field slo: -1:"},
		{`{"kind":"DomainConfig"}`, `field apiVersion: missing; want "pegasus.dev/v1"`},
		{`{"apiVersion":"pegasus.dev/v2","kind":"DomainConfig"}`, `field apiVersion: "pegasus.dev/v2": want "pegasus.dev/v1"`},
		{`{"apiVersion":"pegasus.dev/v1","kind":1}`, `field kind: 1: want "DomainConfig"`},
		{`{` + head + `} {}`, "text behind"},
		{`[]`, "not a JSON object"},
		{``, "not a JSON object"},
		{`null`, "not a JSON object"},
		{`{` + head + `,"slo":`, "field slo: "},
	} {
		settings, err := Read([]byte(c.object), Claim)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, %v; want an error with %q", c.object, settings, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the error has several lines: %q", c.object, err)
		}
	}
}

// Each field is a key of the daemon's, and no two fields are the same key.
func TestFieldsAreKeys(t *testing.T) {
	keys := map[string]string{}
	for name, f := range fields {
		if !slices.Contains(configs.SettingKeys(), f.key) {
			t.Errorf("field %s: the daemon has no key %s", name, f.key)
		}
		if keys[f.key] != "" {
			t.Errorf("fields %s and %s are both %s", name, keys[f.key], f.key)
		}
		keys[f.key] = name
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{` + head + `,"slo":250,"sloWaitP99":"5ms"}`))
	f.Add([]byte(`{` + head + `,"memoryQuota":"1Gi","cpu":"150%"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		settings, err := Read(raw, Class)
		if err != nil {
			return
		}
		var d configs.Domain
		for k, v := range settings {
			if err := d.Give(k, v); err != nil {
				t.Errorf("%s: the daemon refuses %s = %s: %v", raw, k, v, err)
			}
		}
	})
}
