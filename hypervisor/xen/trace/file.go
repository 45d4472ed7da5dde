package trace

import (
	"fmt"
	"io"
	"slices"
)

// WriteTo writes a CPU's records in the file format of xentrace.
func WriteTo(w io.Writer, cpu int, records []byte) error {
	var header [12]byte
	le.PutUint32(header[:], cpuChange|2<<wordsShift)
	le.PutUint32(header[4:], uint32(cpu))
	le.PutUint32(header[8:], uint32(len(records)))
	if _, err := w.Write(header[:]); err != nil {
		return err
	}
	_, err := w.Write(records)
	return err
}

// Parse returns all records of such a file, in the order of their times.
func Parse(file []byte) (all []Record, err error) {
	var last Record
	at := make(map[int]uint64) // time of each CPU's last record
	for pos := 0; pos < len(file); {
		used := 0
		if len(file)-pos >= 12 {
			used = Decode(0, 0, file[pos:pos+12], func(r *Record) { last = *r })
		}
		if used != 12 || last.Event != cpuChange || last.N != 2 {
			return nil, fmt.Errorf("at byte %d of a trace there is no header of a CPU's records: is it one of xentrace's?", pos)
		}
		cpu, n := int(last.Words[0]), int(last.Words[1])
		if pos += 12; n > len(file)-pos {
			return nil, fmt.Errorf("at byte %d a trace ends, %d bytes before a CPU's records do", len(file), n-(len(file)-pos))
		}
		decode(cpu, at[cpu], file[pos:pos+n], func(r *Record) {
			at[cpu] = r.At
			all = append(all, *r)
		})
		pos += n
	}
	slices.SortStableFunc(all, byTime)
	return all, nil
}

func byTime(a, b Record) int {
	switch {
	case a.At < b.At:
		return -1
	case a.At > b.At:
		return 1
	}
	return 0
}

// Merger merges the records of several CPUs in the order of their times.
type Merger struct{ pending []Record }

// Add adds a record. Those of one CPU are in order.
func (m *Merger) Add(r *Record) { m.pending = append(m.pending, *r) }

// Until calls emit with all records before a time. The caller has added all of these.
func (m *Merger) Until(ticks uint64, emit func(*Record)) {
	slices.SortStableFunc(m.pending, byTime)
	n := 0
	for n < len(m.pending) && m.pending[n].At < ticks {
		emit(&m.pending[n])
		n++
	}
	m.pending = slices.Delete(m.pending, 0, n)
}

// Drop drops the records of a time or later, after Until: that time is in the future, so they are invalid.
func (m *Merger) Drop(ticks uint64) {
	n := len(m.pending)
	for n > 0 && m.pending[n-1].At >= ticks {
		n--
	}
	m.pending = m.pending[:n]
}
