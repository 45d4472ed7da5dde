package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// loopback returns a loopback address that no other test uses.
func loopback() string { return fmt.Sprintf("127.77.%d.%d:7070", os.Getpid()>>8&255, os.Getpid()&255) }

// certificate makes a certificate for an address, and returns the files of it and of its key.
func certificate(t *testing.T, at string) (file, key string, pool *x509.CertPool) {
	t.Helper()
	host, _, _ := net.SplitHostPort(at)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.ParseIP(host)}}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, key = filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for path, data := range map[string][]byte{file: public, key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(public)
	return file, key, pool
}

// Over TCP a token gives a role: to view, which changes nothing, or to operate.
func TestTCP(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("tls=", secure), func(t *testing.T) {
			at, dir := loopback(), t.TempDir()
			view, operate := filepath.Join(dir, "view"), filepath.Join(dir, "operate")
			config := fmt.Sprintf("[api]\nlisten = %q\nview_token = %q\noperate_token = %q\n", at, view, operate)
			scheme, transport := "http", &http.Transport{DisableKeepAlives: true}
			if secure {
				file, key, pool := certificate(t, at)
				config += fmt.Sprintf("certificate = %q\nkey = %q\n", file, key)
				scheme, transport.TLSClientConfig = "https", &tls.Config{RootCAs: pool}
			}
			for path, token := range map[string]string{view: "a token to view", operate: "a-token-to-operate"} {
				if err := os.WriteFile(path, []byte(strings.ReplaceAll(token, " ", "-")+"-0123456789\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			h := newHost(t, twoDomains+config)
			client := &http.Client{Transport: transport, Timeout: soon}
			send := func(token, method, path, body string) (int, string) {
				t.Helper()
				q, err := http.NewRequest(method, scheme+"://"+at+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				q.Header.Set("Content-Type", "application/json")
				if token != "" {
					q.Header.Set("Authorization", "Bearer "+token+"-0123456789")
				}
				resp, err := client.Do(q)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				data, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				return resp.StatusCode, string(data)
			}
			for _, c := range []struct {
				token, method, path, body string
				status                    int
				part                      string
			}{
				{"", "GET", "/v1/domains", "", 401, "Authorization: Bearer"},
				{"a-token-to-guess", "GET", "/v1/domains", "", 401, "wrong"},
				{"a-token-to-view", "GET", "/v1/domains", "", 200, `"name":"a"`},
				{"a-token-to-view", "GET", "/metrics", "", 200, `pegasus_domain_credits{accelerator="",domain="a"} 256`},
				{"", "GET", "/metrics", "", 401, ""},
				{"a-token-to-view", "PATCH", "/v1/domains/a", `{"settings":{"credits":"7"}}`, 403, "operate_token"},
				{"a-token-to-view", "POST", "/v1/shutdown", "", 403, ""},
				{"a-token-to-operate", "PATCH", "/v1/domains/a", `{"settings":{"credits":"7"}}`, 200, `"credits":7`},
				{"a-token-to-operate", "POST", "/v1/domains/a/hold", "{}", 403, "control socket"},
				{"a-token-to-operate", "POST", "/v1/domains", `{"domain":"pod"}`, 422, "holder"},
				{"a-token-to-operate", "POST", "/v1/domains", `{"domain":"pod","holder":"p1"}`, 200, `"holder":"p1"`},
			} {
				if status, body := send(c.token, c.method, c.path, c.body); status != c.status || !strings.Contains(body, c.part) {
					t.Errorf("%s %s with %q: %d %s; want %d with %q", c.method, c.path, c.token, status, body, c.status, c.part)
				}
			}
			if d := h.domain("a"); d.Credits != 7 {
				t.Errorf("credits %d", d.Credits)
			}
			log, err := os.ReadFile(filepath.Join(h.dir, "log"))
			if err != nil || !bytes.Contains(log, []byte("(operate)")) || bytes.Contains(log, []byte("0123456789")) {
				t.Errorf("the log lacks the caller of set, or has a token: %s, %v", log, err)
			}
		})
	}
}
