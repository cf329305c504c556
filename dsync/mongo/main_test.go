package mongo_test

import (
	"testing"

	"github.com/leasehold-go/leasehold/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
