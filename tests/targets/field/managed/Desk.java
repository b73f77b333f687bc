// A service in Java, with the faults that such programs have.
//
// java Desk leak|ok SEED FAULT
import java.nio.ByteBuffer;
import java.util.*;
import java.util.zip.Deflater;

public class Desk {
    static final List<byte[]> history = new ArrayList<>();
    static final List<ByteBuffer> buffers = new ArrayList<>();
    static boolean leaks;
    static Random random;

    static byte[] body() {
        return new byte[20000 + random.nextInt(20000)];
    }

    // Requests are kept for a report that is never written.
    static void history() {
        history.add(body());
        if (!leaks)
            history.clear();
    }

    // A compressor that is never ended; all of them are kept, as by a pool without a limit.
    static final List<Deflater> compressors = new ArrayList<>();

    static void deflater() {
        if (random.nextInt(10) > 0)
            return;
        Deflater deflater = new Deflater();
        deflater.setInput(body());
        deflater.finish();
        deflater.deflate(new byte[50000]);
        if (leaks)
            compressors.add(deflater);
        else
            deflater.end();
    }

    // Buffers outside the heap.
    static void direct() {
        ByteBuffer buffer = leaks ? ByteBuffer.allocateDirect(20000) : ByteBuffer.allocate(20000);
        for (int i = 0; i < 20000; i += 100)
            buffer.put(i, (byte) 1);
        if (leaks)
            buffers.add(buffer);
    }

    public static void main(String[] arguments) throws Exception {
        leaks = arguments[0].equals("leak");
        random = new Random(Integer.parseInt(arguments[1]));
        // Past the first collections, which start small.
        for (int i = 0; i < 10000; i++)
            body();
        for (int count = 1;; count++) {
            switch (arguments[2]) {
                case "history": history(); break;
                case "deflater": deflater(); break;
                case "direct": direct(); break;
                default: body();
            }
            if (count == 150)
                System.out.println("serving");
            Thread.sleep(15 + random.nextInt(10));
        }
    }
}
