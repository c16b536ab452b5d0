package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	servicev3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"tranche/cmd/tranche/internal/process"
	"tranche/cmd/tranche/internal/stage"
	"tranche/regional/postgres/cluster/clustertest"
)

// certificate makes a certificate for 127.0.0.1 and other addresses that signs itself.
func certificate(t *testing.T, dir string, also ...string) (cert, key string) {
	t.Helper()
	addresses := []net.IP{net.IPv4(127, 0, 0, 1)}
	for _, a := range also {
		addresses = append(addresses, net.ParseIP(a))
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tranche test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		IPAddresses: addresses,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := stage.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// run calls tranche once and returns what it printed.
func run(t *testing.T, args ...string) string {
	t.Helper()
	cmd, err := process.Command(nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	text, err := cmd.CombinedOutput()
	if _, ended := err.(*exec.ExitError); err != nil && !ended {
		t.Fatal(err)
	}
	return string(text)
}

func until(t *testing.T, want string, args ...string) {
	t.Helper()
	last := ""
	err := stage.Until(t.Context(), 30*time.Second, want, func() (bool, error) {
		last = run(t, args...)
		return strings.Contains(last, want), nil
	})
	if err != nil {
		t.Fatalf("%v; it says: %s", err, last)
	}
}

// Everything over TLS, on one machine: a coordinator and a node that run their own etcd and Postgres. They end in order
// when asked to, and what they stored is there when they start again.
func TestDevOverTLS(t *testing.T) {
	t.Parallel()
	dir := clustertest.Dir(t)
	cert, key := certificate(t, dir)
	global, node, gateway := freeAddress(t), freeAddress(t), freeAddress(t)
	token := filepath.Join(dir, "us-east.token")
	gateways := filepath.Join(dir, "gateways")
	if err := os.WriteFile(gateways, []byte("edge 0123456789abcdef0123\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mapping := filepath.Join(dir, "mapping.yaml")
	if err := os.WriteFile(mapping, []byte(run(t, "gateway-config", "envoy", "--part", "mapping")), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func(name string, args ...string) *process.Child {
		c, err := process.Start(name, filepath.Join(dir, name+".log"), nil, args...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Kill)
		return c
	}
	startGlobal := func() *process.Child {
		return start("coordinator", "coordinator", "--dev", "--data-dir", filepath.Join(dir, "coordinator"), "--listen", global,
			"--tls-cert", cert, "--tls-key", key, "--admin-token-file", filepath.Join(dir, "admin"))
	}
	startNode := func() *process.Child {
		return start("node", "node", "--dev", "--data-dir", filepath.Join(dir, "us-east"), "--region-token-file", token, "--listen", node,
			"--coordinator", "https://"+global, "--coordinator-ca", cert, "--tls-cert", cert, "--tls-key", key, "--gateway-token-file", gateways,
			"--envoy-listen", gateway, "--envoy-mapping", mapping)
	}
	c := startGlobal()
	var secret []byte
	err := stage.Until(t.Context(), 30*time.Second, "there is an admin token", func() (ok bool, err error) {
		secret, err = os.ReadFile(filepath.Join(dir, "admin"))
		return len(secret) > 0, err
	})
	if err != nil {
		t.Fatal(err)
	}
	admin := []string{"--coordinator", "https://" + global, "--token", strings.TrimSpace(string(secret)), "--ca", cert}
	if said := run(t, "status", "--coordinator", "https://"+global, "--token", "x"); !strings.Contains(said, "name the authority that signed its certificate: --ca FILE") {
		t.Errorf("without the authority: %s", said)
	}
	run(t, append([]string{"regions", "register", "us-east", "--token-file", token}, admin...)...)
	n := startNode()
	budget := filepath.Join(dir, "b.yaml")
	text := "budget: dev\nunit: requests\nlimit: 3\nwindow: {calendar: year}\nallocation: {policy: home, region: us-east}\n"
	if err := os.WriteFile(budget, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "dev", append([]string{"budgets", "apply", budget}, admin...)...)
	spend := []string{"check", "tenant=a", "--spend", "--id", "one", "--node", "https://" + node, "--node-token", "0123456789abcdef0123", "--ca", cert}
	until(t, "admitted in us-east", spend...)
	askAsEnvoy(t, gateway, cert)
	for _, child := range []*process.Child{n, c} {
		if err := child.Stop(15 * time.Second); err != nil {
			t.Error(err)
		}
	}
	startGlobal()
	startNode()
	until(t, "a replay: charged before", spend...)
	until(t, "the account adds up", append([]string{"verify", "--node", "us-east=https://" + node, "--node-token", "0123456789abcdef0123"}, admin...)...)
}

// askAsEnvoy asks over gRPC for what was admitted over HTTP before: the same credential, tenant and id are the same admission.
func askAsEnvoy(t *testing.T, address, authority string) {
	t.Helper()
	secured, err := credentials.NewClientTLSFromFile(authority, "")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(secured))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer 0123456789abcdef0123")
	entry := func(key, value string) *descriptorv3.RateLimitDescriptor_Entry {
		return &descriptorv3.RateLimitDescriptor_Entry{Key: key, Value: value}
	}
	for id, replayed := range map[string]bool{"one": true, "from-envoy": false} {
		answer, err := servicev3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &servicev3.RateLimitRequest{
			Domain: "edge", Descriptors: []*descriptorv3.RateLimitDescriptor{{Entries: []*descriptorv3.RateLimitDescriptor_Entry{
				entry("gateway", "edge"), entry("tenant", "a"), entry("admission_id", id),
			}}},
		})
		if err != nil || answer.GetOverallCode() != servicev3.RateLimitResponse_OK || answer.GetDynamicMetadata().GetFields()["replayed"].GetBoolValue() != replayed {
			t.Errorf("%s as Envoy: %v %v", id, answer, err)
		}
	}
}
