// Package faults_test fails every call of a run of each kind of job, see docs/testing/faults.md.
package faults_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
