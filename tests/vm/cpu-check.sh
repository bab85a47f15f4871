# SPDX-License-Identifier: Apache-2.0 OR MIT
# Sourced by `init`: runs `deburr cpu-check` in this machine, and checks its recording.

part document deburr cpu-check --quick --json -o /tmp/check.deburr
part check deburr check /tmp/check.deburr
part report deburr report /tmp/check.deburr --json
part shown deburr report /tmp/check.deburr

. /limits.sh
