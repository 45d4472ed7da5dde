package configs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// spell formats a decoded value for an error approximately as in the file, truncated if it is long.
func spell(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		if len(v) > 80 {
			v = strings.ToValidUTF8(v[:77], "") + "…"
		}
		return quote(v)
	case map[string]any:
		return "{…}"
	case []any, []map[string]any:
		return "[…]"
	default:
		return fmt.Sprint(v)
	}
}

func joinPlain(list []string) string { return strings.Join(list, ", ") }

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
