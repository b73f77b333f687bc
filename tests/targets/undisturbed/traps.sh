run() { exec bash "$CASES/traps.bash"; }
