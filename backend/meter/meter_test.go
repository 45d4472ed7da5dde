package meter

import (
	"testing"
)

func TestMeter(t *testing.T) {
	var m Meter
	if total, ns := m.Growth(); total != 0 || ns != 0 {
		t.Errorf("empty: %d in %d", total, ns)
	}
	m.Sample(1000, 10)
	m.Sample(2000, 30)
	if total, ns := m.Growth(); total != 20 || ns != 1000 {
		t.Errorf("two samples: %d in %d", total, ns)
	}
	for i := int64(3); i <= 100; i++ {
		m.Sample(i*1000, i*i)
	}
	if total, ns := m.Growth(); ns != 8000 || total != 100*100-92*92 {
		t.Errorf("full: %d in %d", total, ns)
	}
	if m.Resting() {
		t.Error("growing counts as resting")
	}
	for i := int64(101); i <= 109; i++ {
		m.Sample(i*1000, 100*100)
	}
	if !m.Resting() {
		t.Error("standing still doesn't count as resting")
	}
}
