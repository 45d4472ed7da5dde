package test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/big"
	"strings"
	"testing"
)

// madeUp are an invented key and two invented answers.
var madeUp = []string{"000102030405060708090a0b0c0d0e0f", "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf", "f0E0d0c0b0a090807060504030201000"}

// checkIntegrity compares the answers that a program has printed with the expected ones: the third is an HMAC of the
// process and its device.
func checkIntegrity(t *testing.T, version int, said string) {
	t.Helper()
	var driver, process uint32
	var thread, iface, table, function, seconds uint64
	lines := said[strings.Index(said, "integrity driver"):]
	if _, err := fmt.Sscanf(lines, "integrity driver %d process %d thread %d interface %d table %d function %d seconds %d",
		&driver, &process, &thread, &iface, &table, &function, &seconds); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	var about []byte
	for _, n := range []uint32{driver, uint32(version + 2), process, uint32(thread)} {
		about = binary.LittleEndian.AppendUint32(about, n)
	}
	for _, n := range []uint64{iface, table, function, seconds} {
		about = binary.LittleEndian.AppendUint64(about, n)
	}
	for device := range strings.SplitSeq(said, "\n") {
		var uuid string
		var domain, bus, slot uint32
		if n, _ := fmt.Sscanf(device, "device %s %d %d %d", &uuid, &domain, &bus, &slot); n != 4 {
			continue
		}
		b, err := hex.DecodeString(uuid)
		if err != nil {
			t.Fatal(err)
		}
		about = append(about, b...)
		for _, n := range []uint32{domain, bus, slot} {
			about = binary.LittleEndian.AppendUint32(about, n)
		}
	}
	if len(about) != 48+28 {
		t.Fatalf("one device was to be told:\n%s", said)
	}
	answers := []string{madeUp[1], strings.ToLower(madeUp[2]), hmacMD2(about)}
	for i, want := range answers {
		if line := fmt.Sprintf("answer %d %s\n", version+i, want); !strings.Contains(said, line) {
			t.Errorf("no %q in\n%s", line, said)
		}
	}
}

func hmacMD2(message []byte) string {
	key, _ := hex.DecodeString(madeUp[0])
	mixed := func(with byte) []byte {
		b := bytes.Clone(key)
		for i := range b {
			b[i] ^= with
		}
		return b
	}
	inner := md2(append(mixed(0x36), message...))
	outer := md2(append(mixed(0x5c), inner[:]...))
	return hex.EncodeToString(outer[:])
}

// The examples of RFC 1319, A.5.
func TestMD2(t *testing.T) {
	for message, want := range map[string]string{
		"":                           "8350e5a3e24c153df2275c9f80692773",
		"a":                          "32ec01ec4a6dac72c0ab96fb34c0b5d1",
		"abc":                        "da853b0d3f88d99b30283a69e6ded6bb",
		"message digest":             "ab4f496bfb2a530b219ff33031fe06b0",
		"abcdefghijklmnopqrstuvwxyz": "4e8ddff3650292ab5a4108c3aa47940b",
		"12345678901234567890123456789012345678901234567890123456789012345678901234567890": "d5976f79d83d3a0dc9806c3c66f3efd8",
	} {
		if got := md2([]byte(message)); hex.EncodeToString(got[:]) != want {
			t.Errorf("%q: %x, want %s", message, got, want)
		}
	}
}

// md2 implements RFC 1319 literally: pad, append the checksum, digest.
func md2(message []byte) [16]byte {
	pi := piBytes()
	pad := 16 - len(message)%16
	message = append(bytes.Clone(message), bytes.Repeat([]byte{byte(pad)}, pad)...)
	var sum [16]byte
	last := byte(0)
	for i, c := range message {
		sum[i%16] ^= pi[c^last]
		last = sum[i%16]
	}
	message = append(message, sum[:]...)
	var x [48]byte
	for ; len(message) > 0; message = message[16:] {
		for i, c := range message[:16] {
			x[16+i], x[32+i] = c, c^x[i]
		}
		t := byte(0)
		for round := range 18 {
			for i := range x {
				x[i] ^= pi[t]
				t = x[i]
			}
			t += byte(round)
		}
	}
	return [16]byte(x[:16])
}

// piBytes returns MD2's permutation: all bytes, shuffled by the digits of pi.
func piBytes() [256]byte {
	digits := piDigits(800)
	below := func(n int) int {
		for {
			x, y := int(digits[0]), 10
			for digits = digits[1:]; n > y; digits = digits[1:] {
				x, y = 10*x+int(digits[0]), 10*y
			}
			if x < n*(y/n) {
				return x % n
			}
		}
	}
	var s [256]byte
	for i := range s {
		s[i] = byte(i)
	}
	for i := 2; i <= 256; i++ {
		j := below(i)
		s[j], s[i-1] = s[i-1], s[j]
	}
	return s
}

// piDigits returns the first n decimal digits of pi, by Machin's formula.
func piDigits(n int) []byte {
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n+20)), nil)
	arctan := func(x int64) *big.Int {
		term := new(big.Int).Div(unit, big.NewInt(x))
		sum := new(big.Int).Set(term)
		for k := int64(3); term.Sign() != 0; k += 2 {
			term.Div(term, big.NewInt(x*x))
			part := new(big.Int).Div(term, big.NewInt(k))
			if k%4 == 3 {
				part.Neg(part)
			}
			sum.Add(sum, part)
		}
		return sum
	}
	pi := new(big.Int).Mul(big.NewInt(16), arctan(5))
	pi.Sub(pi, new(big.Int).Mul(big.NewInt(4), arctan(239)))
	digits := []byte(pi.String()[:n])
	for i := range digits {
		digits[i] -= '0'
	}
	return digits
}
