"""Counts the stock: locks every row, thinks, lets go."""
import subprocess, time
client = subprocess.Popen(["mariadb", "--no-defaults", "-uroot", "-S", "s.sock", "--unbuffered", "shop"], stdin=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL)
def say(text):
    client.stdin.write(text + "\n"); client.stdin.flush()
for turn in range(8):
    say("BEGIN; SELECT sum(left_) FROM stock FOR UPDATE;")
    time.sleep(1.5)     # asks another service
    say("COMMIT;")
    time.sleep(1)
client.stdin.close()
