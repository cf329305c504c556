package server_test

import (
	"slices"
	"testing"

	"github.com/leasehold-go/leasehold/integration/internal/server"
)

// Every version of MongoDB is started as a replica set. Other images, and explicit command lines,
// are used unchanged.
func TestImageFromEnv(t *testing.T) {
	replset := []string{"--replSet", "rs0", "--bind_ip_all"}
	tests := []struct {
		repository, tag, cmd string
		image                string
		args                 []string
	}{
		{"", "", "", "mongo:8", replset},
		{"", "4.4", "", "mongo:4.4", replset},
		{"", "5.0", "--bind_ip_all --quiet", "mongo:5.0", []string{"--bind_ip_all", "--quiet"}},
		{"leasehold/ferretdb", "2.7", "", "leasehold/ferretdb:2.7", nil},
		{"other", "", "", "other:latest", nil},
	}
	for _, tt := range tests {
		t.Setenv("LEASEHOLD_IMAGE_REPOSITORY", tt.repository)
		t.Setenv("LEASEHOLD_IMAGE_TAG", tt.tag)
		t.Setenv("LEASEHOLD_IMAGE_CMD", tt.cmd)
		im := server.ImageFromEnv()
		if im.String() != tt.image || !slices.Equal(im.Cmd, tt.args) {
			t.Errorf("%+v: %s with %q, want %s with %q", tt, im, im.Cmd, tt.image, tt.args)
		}
	}
}
