//go:build unix

package gateways

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tranche/regional/postgres/cluster/clustertest"
)

// certificate signs itself, for localhost and 127.0.0.1.
func certificate(t *testing.T, dir, name string) (tls.Certificate, string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, name+".pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, file
}

// A gateway that would take any certificate would send its token to anybody, and believe anybody.
func TestOverTLS(t *testing.T) {
	dir := clustertest.Dir(t)
	pair, own := certificate(t, dir, "own")
	_, other := certificate(t, dir, "other")
	for _, gateway := range []string{"nginx", "haproxy", "caddy"} {
		for ca, want := range map[string]int{own: http.StatusOK, other: http.StatusServiceUnavailable} {
			t.Run(gateway+" "+filepath.Base(ca), func(t *testing.T) {
				t.Parallel()
				try(t, gateway, func(s *station) {
					a := s.once("GET", "/", "", "X-Tenant: acme", "Admission-Id: a")
					if want == http.StatusOK && a.status == http.StatusServiceUnavailable {
						a = s.ask("GET", "/", "", "X-Tenant: acme", "Admission-Id: a")
					}
					if a.status != want || (s.served.Load() == 1) != (want == http.StatusOK) {
						t.Errorf("%+v, went through %d times", a, s.served.Load())
					}
				}, func(s *station) {
					s.address = strings.Replace(s.address, "127.0.0.1", "localhost", 1)
					s.secured, s.ca = &tls.Config{Certificates: []tls.Certificate{pair}}, ca
				})
			})
		}
	}
}
