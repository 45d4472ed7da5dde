package main

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestResolverTable(t *testing.T) {
	var rows []row
	if err := json.Unmarshal([]byte(`[[3020, "cuCtxCreate_v2"], [11040, "cuCtxCreate_v3"]]`), &rows); err != nil {
		t.Fatal(err)
	}
	for version, want := range map[int]string{3010: "-", 3020: "cuCtxCreate_v2", 11030: "cuCtxCreate_v2", 11040: "cuCtxCreate_v3", 13000: "cuCtxCreate_v3"} {
		if got := answerOf(rows, version); got != want {
			t.Errorf("%d: %s, want %s", version, got, want)
		}
	}
	if got := versionsOf(rows, nil); !slices.Equal(got, []int{3010, 3020, 11030, 11040, 12040, 13000}) {
		t.Errorf("asked at %v", got)
	}
}
