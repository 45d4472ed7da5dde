package driver

import (
	"maps"
	"testing"

	"pegasus/backend/control"
)

// Domains that are tied to an accelerator count there, and others nowhere.
func TestDeclared(t *testing.T) {
	domain := func(accelerator, credits string) control.Table {
		return control.Table{Table: "domain", Settings: []control.Setting{{Key: "credits", Value: credits}, {Key: "accelerator", Value: accelerator}}}
	}
	got := declared([]control.Table{{Table: "default_domain", Settings: domain(`"soft0"`, "7").Settings}, domain(`"soft0"`, "100"), domain(`"soft0"`, "28"), domain(`""`, "256"), domain(`"gpu0"`, "1")})
	if want := map[string]int64{"soft0": 128, "gpu0": 1}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
