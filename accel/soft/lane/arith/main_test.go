package arith

import (
	"testing"

	"pegasus/accel/soft/lane/internal/lanetest"
)

func TestMain(m *testing.M) { lanetest.Main(m, &VectorLevel) }
