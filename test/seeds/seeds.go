// Package seeds gives tests with random inputs their seeds, which the tests' logs name.
//
// PEGASUS_TEST_SEED overrules them: with a number, to repeat a failure, or with "fresh", to look for new ones.
package seeds

import (
	"os"
	"strconv"
	"testing"
	"time"
)

const variable = "PEGASUS_TEST_SEED"

// Fixed is for tests that run with each change: what fails then fails because of the change, and does so everywhere.
func Fixed(t testing.TB) uint64 {
	t.Helper()
	return named(t, func() uint64 { return 1 })
}

// Fresh returns a new seed for a test that searches for untried cases, unless the environment names one.
func Fresh(t testing.TB) uint64 {
	t.Helper()
	return named(t, fresh)
}

func named(t testing.TB, otherwise func() uint64) uint64 {
	t.Helper()
	seed := uint64(0)
	switch s := os.Getenv(variable); s {
	case "":
		seed = otherwise()
	case "fresh":
		seed = fresh()
	default:
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("%s=%s is neither a number nor \"fresh\"", variable, s)
		}
	}
	t.Logf("%s=%d", variable, seed)
	return seed
}

func fresh() uint64 { return uint64(time.Now().UnixNano()) }
