package exec

import (
	"testing"

	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/internal/lanetest"
)

func TestMain(m *testing.M) { lanetest.Main(m, &arith.VectorLevel) }
