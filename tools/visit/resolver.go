package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// resolved is the result of one call of cuGetProcAddress.
type resolved struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
	Flags   int    `json:"flags"`
	Result  int    `json:"result"`
	Status  int    `json:"status"`
	Symbol  string `json:"symbol"`         // "-": none; "?": an address that no symbol has
	Ours    string `json:"ours,omitempty"` // our table's symbol, if it differs
}

// resolver queries all names of our table at all versions that change a result, and some beyond, and records the
// results that differ from our table.
func resolver(ctx context.Context, v *visit) (any, error) {
	text, err := os.ReadFile(v.in("spec/driver_api.json"))
	if err != nil {
		return nil, err
	}
	var spec struct {
		GetProcAddress []struct {
			Name              string
			Legacy, PerThread []row
		}
	}
	if err := json.Unmarshal(text, &spec); err != nil {
		return nil, err
	}
	var ask strings.Builder
	want := map[string]string{}
	question := func(name string, version, flags int, rows []row) {
		key := fmt.Sprintf("%s %d %d", name, version, flags)
		fmt.Fprintln(&ask, key)
		want[key] = answerOf(rows, version)
	}
	for _, n := range spec.GetProcAddress {
		own := n.PerThread
		if own == nil {
			own = n.Legacy
		}
		for _, version := range versionsOf(n.Legacy, n.PerThread) {
			question(n.Name, version, 0, n.Legacy)
			question(n.Name, version, 2, own)
		}
	}
	for _, version := range []int{12040, 12090, 13000, 13010, 13020, 99990} {
		question("cuNoSuchFunction", version, 0, nil)
	}
	cmd := v.program(ctx, v.environment(), v.in("programs/probe"), "resolver")
	cmd.Stdin = strings.NewReader(ask.String())
	out, err := v.output(ctx, cmd)
	if err != nil {
		return nil, err
	}
	if _, err := read(out); err != nil {
		return nil, err
	}
	found := struct {
		Asked  int        `json:"asked"`
		Differ []resolved `json:"differ"`
	}{}
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		var r resolved
		if n, _ := fmt.Sscan(lines.Text(), &r.Name, &r.Version, &r.Flags, &r.Result, &r.Status, &r.Symbol); n != 6 {
			continue
		}
		found.Asked++
		if r.Version > v.cuda && r.Result == invalidValue {
			continue // newer than the driver, as the result states
		}
		if ours := want[fmt.Sprintf("%s %d %d", r.Name, r.Version, r.Flags)]; ours != r.Symbol {
			r.Ours = ours
			found.Differ = append(found.Differ, r)
		}
	}
	if found.Asked == 0 {
		return nil, fmt.Errorf("the probe answered nothing")
	}
	return found, nil
}

const invalidValue = 1 // CUDA_ERROR_INVALID_VALUE

// row is a symbol of a name, and the version since when it is.
type row struct {
	since  int
	symbol string
}

func (r *row) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &[]any{&r.since, &r.symbol}) }

// versionsOf returns the versions at which a result changes, and those right before.
func versionsOf(lists ...[]row) (all []int) {
	for _, rows := range lists {
		for _, r := range rows {
			all = append(all, r.since-10, r.since)
		}
	}
	all = append(all, 12040, 13000)
	slices.Sort(all)
	return slices.Compact(all)
}

// answerOf returns the symbol of a name at a version.
func answerOf(rows []row, version int) string {
	symbol := "-"
	for _, r := range rows {
		if r.since <= version {
			symbol = r.symbol
		}
	}
	return symbol
}
