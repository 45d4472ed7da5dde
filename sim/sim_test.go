package sim

import "testing"

func TestOne(t *testing.T) {
	sc, err := Load("P4")
	if err != nil {
		t.Fatal(err)
	}
	for i := range sc.Plans {
		s, err := New(sc, &sc.Plans[i], 1)
		if err != nil {
			t.Fatal(err)
		}
		s.Run()
		m := s.measure(sc)
		t.Log(sc.Plans[i].Name, s.Events(), s.Now(), m[""], m["Dom1"])
	}
}
