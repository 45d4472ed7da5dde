package hardware

import (
	"encoding/json"
	"testing"
)

// Engine time is read as earlier releases wrote it, too.
func TestEngineTimeOfEarlierReleases(t *testing.T) {
	for text, want := range map[string]EngineTime{`[1,2,3,4]`: {5, 2, 3}, `{"compute":1,"copy_in":2,"copy_out":3}`: {1, 2, 3}} {
		var got EngineTime
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s: got %v, %v; want %v", text, got, err, want)
		}
	}
}
