package cuda

// SymbolKind is the place where a symbol of the guest library is implemented.
type SymbolKind uint8

const (
	SymbolStub      SymbolKind = iota // nowhere: CUDA_ERROR_NOT_SUPPORTED
	SymbolLocal                       // in the guest
	SymbolForwarded                   // by the worker
)

// Symbol is one exported symbol of the guest library.
type Symbol struct {
	Name     string
	Kind     SymbolKind
	Tier     int    // 1: ffmpeg's loader, 2: the CUDA runtime, 3: the rest
	Programs string // the programs that look it up, separated by commas
}

// Symbols returns all symbols that the guest library exports.
func Symbols() []Symbol { return symbols }

// CoverageCounts is the number of symbols of each kind.
type CoverageCounts struct {
	Symbols   int `json:"symbols"`
	Local     int `json:"local"`
	Forwarded int `json:"forwarded"`
	Stubs     int `json:"stubs"`
}

// Implemented returns the number of symbols that are not stubs.
func (c CoverageCounts) Implemented() int { return c.Local + c.Forwarded }

// Coverage returns the counts of a tier's symbols; tier 0 stands for all of them.
func Coverage(tier int) CoverageCounts {
	var c CoverageCounts
	for _, s := range symbols {
		if tier != 0 && s.Tier != tier {
			continue
		}
		c.Symbols++
		switch s.Kind {
		case SymbolLocal:
			c.Local++
		case SymbolForwarded:
			c.Forwarded++
		default:
			c.Stubs++
		}
	}
	return c
}
