# SPDX-License-Identifier: Apache-2.0 OR MIT
# Read by `init`: checks the CPUs of this machine, and judges the recording.

part document deburr cpu-check --quick --json -o /tmp/check.deburr
part check deburr check /tmp/check.deburr
part report deburr report /tmp/check.deburr --json
part shown deburr report /tmp/check.deburr

. /limits.sh
