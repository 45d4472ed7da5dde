package metrics

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"testing"
)

// The alert rules and the dashboard name metrics that exist.
func TestPackaging(t *testing.T) {
	names := names()
	name := regexp.MustCompile(`\bpegasus_[a-z0-9_]+`)
	for _, file := range []string{"prometheus/pegasus.rules.yml", "prometheus/pegasus.rules.test.yml", "grafana/pegasus.json"} {
		text, err := os.ReadFile("../../packaging/" + file)
		if err != nil {
			t.Fatal(err)
		}
		found := name.FindAllString(string(text), -1)
		if len(found) < 10 {
			t.Errorf("%s: got %d names of metrics, want more: are they found?", file, len(found))
		}
		for _, metric := range found {
			if !slices.Contains(names, metric) {
				t.Errorf("%s: %s: no such metric", file, metric)
			}
		}
	}
}

// The dashboard's panels have distinct places and numbers, and every variable that an expression uses exists.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../packaging/grafana/pegasus.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		UID           string `json:"uid"`
		SchemaVersion int    `json:"schemaVersion"`
		Templating    struct {
			List []struct{ Name string }
		}
		Panels []struct {
			ID          int
			Type, Title string
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	if board.UID != "pegasus" || board.SchemaVersion < 36 {
		t.Errorf("got uid %q and schema %d, want pegasus and 36 or newer", board.UID, board.SchemaVersion)
	}
	variables := map[string]bool{"__rate_interval": true}
	for _, v := range board.Templating.List {
		variables[v.Name] = true
	}
	variable := regexp.MustCompile(`\$\{?(\w+)`)
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("panel %s: number %d is taken", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %s has no expression", p.Title)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %s covers %q at %d, %d", p.Title, other, x, y)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		for _, target := range p.Targets {
			for _, v := range variable.FindAllStringSubmatch(target.Expr, -1) {
				if !variables[v[1]] {
					t.Errorf("panel %s: %s: no variable %s", p.Title, target.Expr, v[1])
				}
			}
		}
	}
}
